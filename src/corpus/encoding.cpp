#include "corpus/encoding.h"

#include <algorithm>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/queue.h"
#include "base/text.h"

namespace sluice::corpus {

using base::Json;

namespace {

// Documents that one thread takes at once.
constexpr size_t kBatchDocuments = 4096;
constexpr size_t kBatchBytes = size_t{1} << 20;

struct Batch {
  std::vector<RawDocument> documents;
  DocumentCounts counts;  // of what was passed over while these were read
  int64_t file = 0;       // and where reading stands behind them
  int64_t read_documents = 0;
  int64_t read_bytes = 0;  // of all files
};

struct EncodedBatch {
  std::vector<std::vector<int32_t>> ids;
  DocumentCounts counts;
  int64_t changed_documents = 0;
  std::vector<std::vector<uint8_t>> masks;  // of conversations
  ChatCounts chats;
};

EncodedBatch encode_chats(const Batch& batch, const DocumentOptions& options, const Tokenizer& tokenizer) {
  EncodedBatch encoded{.counts = batch.counts};
  std::vector<std::string> chats;
  std::vector<const RawDocument*> documents;
  for (const RawDocument& document : batch.documents) {
    std::optional<std::string> chat = chat_of(document, options, encoded.counts);
    if (!chat) continue;
    chats.push_back(std::move(*chat));
    documents.push_back(&document);
  }
  std::vector<EncodedChat> answers = tokenizer.encode_chats(chats);
  for (size_t i = 0; i < answers.size(); ++i) {
    EncodedChat& chat = answers[i];
    const std::string fault = base::text(documents[i]->place, ": ", chat.fault);
    if (chat.lost) {
      ++encoded.counts.documents;
      encoded.chats += {.lost_documents = 1, .lost = {fault}};
      continue;
    }
    if (!chat.fault.empty()) {
      // The other corpus of pairs may have it: their documents stand in the same order.
      if (options.answers && !options.answers->other_answer.empty()) throw base::InputError(fault);
      leave_out(fault, options, encoded.counts);
      continue;
    }
    ++encoded.counts.documents;
    encoded.counts.bytes += std::ssize(documents[i]->bytes);
    encoded.ids.push_back(std::move(chat.ids));
    encoded.masks.push_back(std::move(chat.mask));
    encoded.chats += chat.counts;
  }
  return encoded;
}

EncodedBatch encode(const Batch& batch, const DocumentOptions& options, const Tokenizer& tokenizer) {
  if (options.chats) return encode_chats(batch, options, tokenizer);
  EncodedBatch encoded{.counts = batch.counts};
  std::vector<std::string> texts;
  for (const RawDocument& document : batch.documents) {
    texts_of(document, options, encoded.counts, [&](std::string_view whole) { texts.emplace_back(whole); });
  }
  encoded.ids = tokenizer.encode_all(texts);
  const std::vector<std::string> decoded = tokenizer.decode_all(encoded.ids);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (decoded[i] != texts[i]) ++encoded.changed_documents;
    std::vector<int32_t>& ids = encoded.ids[i];
    if (tokenizer.begin_id() >= 0) ids.insert(ids.begin(), tokenizer.begin_id());
    if (tokenizer.end_id() >= 0) ids.push_back(tokenizer.end_id());
  }
  return encoded;
}

// Threads that run what is given to them.
class Pool {
 public:
  explicit Pool(int threads) : tasks_(static_cast<size_t>(threads)) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        while (auto task = tasks_.pop()) (*task)();
      });
    }
  }
  ~Pool() { tasks_.close(); }

  template <typename Work>
  auto run(Work work) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto result = task.get_future();
    tasks_.push(std::packaged_task<void()>([task = std::move(task)]() mutable { task(); }));
    return result;
  }

 private:
  base::BoundedQueue<std::packaged_task<void()>> tasks_;
  std::vector<std::jthread> threads_;
};

// Batches on their way through the pool, written in the order in which they came.
class Pipeline {
 public:
  Pipeline(const EncodingOptions& options, const Tokenizer& tokenizer, IndexedWriter& writer,
           Encoded& encoded)
      : options_(options),
        tokenizer_(tokenizer),
        writer_(writer),
        encoded_(encoded),
        pool_(options.workers) {}

  void add(Batch batch) {
    while (under_way_.size() >= 2 * static_cast<size_t>(options_.workers)) write_oldest();
    auto shared = std::make_shared<const Batch>(std::move(batch));
    auto result = pool_.run([this, shared] { return encode(*shared, options_.documents, tokenizer_); });
    under_way_.push_back({std::move(shared), std::move(result)});
  }

  void finish() {
    while (!under_way_.empty()) write_oldest();
  }

 private:
  struct UnderWay {
    std::shared_ptr<const Batch> batch;
    std::future<EncodedBatch> result;
  };

  void write_oldest() {
    UnderWay oldest = std::move(under_way_.front());
    under_way_.pop_front();
    const EncodedBatch result = oldest.result.get();
    for (size_t i = 0; i < result.ids.size(); ++i) {
      const std::vector<int32_t>& ids = result.ids[i];
      for (const int32_t id : ids) ++encoded_.token_counts[static_cast<size_t>(id)];
      if (options_.documents.chats) {
        writer_.add(ids, result.masks[i]);
        encoded_.learnt_tokens += std::ranges::count(result.masks[i], 1);
      } else if (!ids.empty()) {
        writer_.add(ids);
      }
    }
    encoded_.chats += result.chats;
    encoded_.counts += result.counts;
    encoded_.changed_documents += result.changed_documents;
    encoded_.file = oldest.batch->file;
    encoded_.read_documents = oldest.batch->read_documents;
    const int64_t read_bytes = oldest.batch->read_bytes;
    if (saved_bytes_ < 0) saved_bytes_ = read_bytes;
    if (read_bytes - saved_bytes_ >= options_.save_bytes) {
      writer_.save(to_json(encoded_));
      saved_bytes_ = read_bytes;
    }
    if (options_.on_progress) options_.on_progress(read_bytes);
  }

  const EncodingOptions& options_;
  const Tokenizer& tokenizer_;
  IndexedWriter& writer_;
  Encoded& encoded_;
  int64_t saved_bytes_ = -1;
  std::deque<UnderWay> under_way_;
  Pool pool_;  // its threads end before what they use
};

}  // namespace

Json to_json(const Encoded& encoded) {
  const DocumentCounts& counts = encoded.counts;
  return {{"counts",
           {counts.files, counts.documents, counts.bytes, counts.binary_files, counts.refused_documents,
            counts.empty_documents}},
          {"first_refusals", counts.first_refusals},
          {"changed_documents", encoded.changed_documents},
          {"learnt_tokens", encoded.learnt_tokens},
          {"chats", to_json(encoded.chats)},
          {"token_counts", encoded.token_counts},
          {"file", encoded.file},
          {"read_documents", encoded.read_documents}};
}

Encoded encoded_from_json(const Json& json, const std::string& name) {
  Encoded encoded;
  const auto counts = base::require<std::vector<int64_t>>(json, "counts", name);
  int64_t* const fields[] = {
      &encoded.counts.files,        &encoded.counts.documents,         &encoded.counts.bytes,
      &encoded.counts.binary_files, &encoded.counts.refused_documents, &encoded.counts.empty_documents};
  if (counts.size() != std::size(fields)) {
    throw base::InputError(base::text(name, " is damaged: remove its folder to begin anew"));
  }
  for (size_t i = 0; i < counts.size(); ++i) *fields[i] = counts[i];
  encoded.counts.first_refusals = base::require<std::vector<std::string>>(json, "first_refusals", name);
  encoded.changed_documents = base::require<int64_t>(json, "changed_documents", name);
  encoded.learnt_tokens = base::require<int64_t>(json, "learnt_tokens", name);
  encoded.chats = chat_counts_from_json(base::require<Json>(json, "chats", name), name);
  encoded.token_counts = base::require<std::vector<int64_t>>(json, "token_counts", name);
  encoded.file = base::require<int64_t>(json, "file", name);
  encoded.read_documents = base::require<int64_t>(json, "read_documents", name);
  return encoded;
}

void encode_files(const std::vector<InputFile>& files, const EncodingOptions& options,
                  const Tokenizer& tokenizer, IndexedWriter& writer, Encoded& encoded) {
  const auto first = static_cast<size_t>(encoded.file);
  int64_t before_bytes = 0;  // of the files that are done
  for (size_t i = 0; i < first; ++i) before_bytes += files[i].size_bytes;
  Pipeline pipeline(options, tokenizer, writer, encoded);
  const int64_t skipped = encoded.read_documents;
  Batch batch;
  size_t batch_bytes = 0;
  for (size_t file = first; file < files.size(); ++file) {
    int64_t documents = 0;
    read_documents(files[file], options.documents, batch.counts, [&](RawDocument&& document) {
      ++documents;
      if (file == first && documents <= skipped) {
        if (documents == skipped) batch.counts = {};  // all so far is in `encoded`
        return;
      }
      batch_bytes += document.bytes.size();
      batch.read_bytes = before_bytes + document.read_bytes;
      batch.documents.push_back(std::move(document));
      if (batch.documents.size() < kBatchDocuments && batch_bytes < kBatchBytes) return;
      batch.file = static_cast<int64_t>(file);
      batch.read_documents = documents;
      pipeline.add(std::exchange(batch, {}));
      batch_bytes = 0;
    });
    before_bytes += files[file].size_bytes;
  }
  batch.file = static_cast<int64_t>(files.size());
  batch.read_bytes = before_bytes;
  pipeline.add(std::move(batch));
  pipeline.finish();
}

}  // namespace sluice::corpus
