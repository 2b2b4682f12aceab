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
#include "base/renamed_json.h"
#include "base/text.h"
#include "corpus/input_copies.h"

namespace sluice::corpus {

using base::Json;

namespace {

// Documents that one thread takes at once.
constexpr size_t kBatchDocuments = 4096;
constexpr size_t kBatchBytes = size_t{1} << 20;

struct Batch {
  std::vector<RawDocument> documents;
  std::vector<uint32_t> sources;  // one per document
  DocumentCounts counts;          // for everything skipped while reading these documents
  int64_t file = 0;               // position of the reader behind them
  int64_t read_documents = 0;
  int64_t read_bytes = 0;  // over all files
};

struct EncodedBatch {
  std::vector<std::vector<int32_t>> ids;
  std::vector<DocumentMark> marks;
  DocumentCounts counts;
  std::vector<std::vector<uint8_t>> masks;  // conversations only
  std::vector<std::string> labels;          // one per document, if documents have labels
  ChatCounts chats;
};

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Conversations are duplicates if their learnt tokens are equal: the hash covers ids and mask.
DocumentMark mark_of(const EncodedChat& chat, size_t bytes, uint32_t source) {
  DocumentMark mark{.bytes = static_cast<uint32_t>(bytes), .source = source << DocumentMark::kSourceShift};
  mark.hash = base::wide_hash_bytes(std::string(bytes_of(chat.ids)).append(bytes_of(chat.mask)));
  return mark;
}

// The document's label; nullopt if it is left out; "" without words if documents have no labels.
std::optional<DocumentLabel> label_if_any(const RawDocument& document, const DocumentOptions& options,
                                          DocumentCounts& counts) {
  return options.label_key.empty() ? DocumentLabel{} : label_of(document, options, counts);
}

EncodedBatch encode_chats(const Batch& batch, const DocumentOptions& options, const Tokenizer& tokenizer) {
  EncodedBatch encoded{.counts = batch.counts};
  std::vector<std::string> chats;
  std::vector<const RawDocument*> documents;
  std::vector<uint32_t> sources;
  std::vector<std::string> labels;
  for (size_t i = 0; i < batch.documents.size(); ++i) {
    const RawDocument& document = batch.documents[i];
    std::optional<std::string> chat = chat_of(document, options, encoded.counts);
    if (!chat) continue;
    std::optional<DocumentLabel> label = label_if_any(document, options, encoded.counts);
    if (!label) continue;
    labels.push_back(std::move(label->json));
    chats.push_back(std::move(*chat));
    documents.push_back(&document);
    sources.push_back(batch.sources[i]);
  }
  std::vector<EncodedChat> answers = tokenizer.encode_chats(chats);
  for (size_t i = 0; i < answers.size(); ++i) {
    EncodedChat& chat = answers[i];
    const std::string fault = base::text(documents[i]->place, ": ", chat.fault);
    if (chat.lost) {
      ++encoded.counts.documents;
      encoded.chats += {.lost = {.count = 1, .first = {fault}}};
      continue;
    }
    if (!chat.fault.empty()) {
      // The other corpus of the pairs may have it: documents stand in the same order in both.
      if (options.answers && !options.answers->other_answer.empty()) throw base::InputError(fault);
      leave_out(fault, options, encoded.counts);
      continue;
    }
    ++encoded.counts.documents;
    encoded.counts.bytes += std::ssize(documents[i]->bytes);
    encoded.marks.push_back(mark_of(chat, documents[i]->bytes.size(), sources[i]));
    encoded.ids.push_back(std::move(chat.ids));
    encoded.labels.push_back(std::move(labels[i]));
    encoded.masks.push_back(std::move(chat.mask));
    encoded.chats += chat.counts;
  }
  return encoded;
}

// A document that is a list of words, and its place in the batch.
struct WordDocument {
  size_t at;
  const RawDocument* raw;
  std::vector<std::string> words;
};

template <typename T>
void erase_at(std::vector<T>& values, size_t at) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(at));
}

// Fills in the tokens of documents of words, with labels by token instead of by word.
void add_words(const std::vector<WordDocument>& documents, const DocumentOptions& options,
               const Tokenizer& tokenizer, EncodedBatch& encoded) {
  std::vector<std::vector<std::string>> texts;
  for (const WordDocument& document : documents) texts.push_back(document.words);
  const auto ids = encode_words(tokenizer, texts);
  std::vector<size_t> without_token;
  for (size_t i = 0; i < documents.size(); ++i) {
    const auto& [at, raw, words] = documents[i];
    LabelledTokens tokens = labelled_tokens(ids[i], encoded.labels[at], options.label_pieces, tokenizer);
    if (tokens.labels.empty()) {
      leave_out(base::text(raw->place, ": no word gives a token, so there is nothing to label"), options,
                encoded.counts);
      without_token.push_back(at);
      continue;
    }
    const std::string whole = base::join(words, " ");
    ++encoded.counts.documents;
    encoded.counts.bytes += std::ssize(whole);
    encoded.marks[at].bytes = static_cast<uint32_t>(whole.size());
    // Documents are duplicates if their learnt content is equal: the hash covers words and labels.
    encoded.marks[at].hash = base::wide_hash_bytes(base::text(whole, "\n", tokens.labels));
    encoded.ids[at] = std::move(tokens.ids);
    encoded.labels[at] = std::move(tokens.labels);
  }
  for (size_t i = without_token.size(); i-- > 0;) {
    erase_at(encoded.marks, without_token[i]);
    erase_at(encoded.ids, without_token[i]);
    erase_at(encoded.labels, without_token[i]);
  }
}

EncodedBatch encode(const Batch& batch, const DocumentOptions& options, const Tokenizer& tokenizer) {
  if (options.chats) return encode_chats(batch, options, tokenizer);
  EncodedBatch encoded{.counts = batch.counts};
  std::vector<std::string> texts;
  std::vector<WordDocument> of_words;  // documents without text
  for (size_t i = 0; i < batch.documents.size(); ++i) {
    std::optional<DocumentLabel> label = label_if_any(batch.documents[i], options, encoded.counts);
    if (!label) continue;
    const auto add = [&](std::string_view whole) {
      texts.emplace_back(whole);
      encoded.labels.push_back(label->json);
      encoded.marks.push_back({base::wide_hash_bytes(whole), static_cast<uint32_t>(whole.size()),
                               batch.sources[i] << DocumentMark::kSourceShift});
    };
    if (label->words.empty()) {
      texts_of(batch.documents[i], options, encoded.counts, add);
    } else {
      of_words.push_back({texts.size(), &batch.documents[i], std::move(label->words)});
      add("");
    }
  }
  std::vector<EncodedText> checked = tokenizer.encode_checked(texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (checked[i].changed) encoded.marks[i].source |= DocumentMark::kChanged;
    encoded.ids.push_back(with_ends(tokenizer, std::move(checked[i].ids)));
  }
  add_words(of_words, options, tokenizer, encoded);
  return encoded;
}

// Threads that run the given functions.
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

// Batches in flight through the pool, written in the order in which they were added.
class Pipeline {
 public:
  Pipeline(const EncodingOptions& options, const Tokenizer& tokenizer, IndexedWriter& writer,
           Encoded& encoded)
      : options_(options), tokenizer_(tokenizer), writer_(writer), encoded_(encoded), pool_(options.workers) {
    if (!options.leave_out_duplicates) return;
    for (const DocumentMark& mark : writer.saved_marks()) seen_.insert(mark.hash);
  }

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
      static const std::vector<uint8_t> kNoMask;
      write(result.ids[i], result.masks.empty() ? kNoMask : result.masks[i], result.marks[i],
            result.labels[i]);
    }
    for (const uint32_t source : oldest.batch->sources) ++encoded_.sources[source].rows;
    encoded_.chats += result.chats;
    encoded_.counts += result.counts;
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

  void write(const std::vector<int32_t>& ids, const std::vector<uint8_t>& mask, const DocumentMark& mark,
             const std::string& label) {
    if (options_.leave_out_duplicates && !seen_.insert(mark.hash).second)
      return count_duplicate(mark, encoded_);
    if (options_.documents.chats || !ids.empty()) writer_.add(ids, mask, mark, label);
    count_document(mark, ids, mask, encoded_);
  }

  const EncodingOptions& options_;
  const Tokenizer& tokenizer_;
  IndexedWriter& writer_;
  Encoded& encoded_;
  int64_t saved_bytes_ = -1;
  DocumentHashes seen_;
  std::deque<UnderWay> under_way_;
  Pool pool_;  // its threads end before the members that they use
};

}  // namespace

namespace {

// `times` is 1 to count a document, -1 to remove it again.
void count_written(const DocumentMark& mark, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                   int64_t times, Encoded& encoded) {
  for (const int32_t id : ids) encoded.token_counts[static_cast<size_t>(id)] += times;
  encoded.loss_tokens += times * std::ranges::count(mask, 1);
  if (mark.source & DocumentMark::kChanged) encoded.changed_documents += times;
  SourceCounts& source = encoded.sources[mark.source >> DocumentMark::kSourceShift];
  source.documents += times;
  source.tokens += times * std::ssize(ids);
}

}  // namespace

void count_document(const DocumentMark& mark, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                    Encoded& encoded) {
  count_written(mark, ids, mask, 1, encoded);
}

void uncount_duplicate(const DocumentMark& mark, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                       Encoded& encoded) {
  count_written(mark, ids, mask, -1, encoded);
  count_duplicate(mark, encoded);
}

void count_duplicate(const DocumentMark& mark, Encoded& encoded) {
  --encoded.counts.documents;
  encoded.counts.bytes -= mark.bytes;
  ++encoded.sources[mark.source >> DocumentMark::kSourceShift].duplicates;
}

void add_counts(const Encoded& more, Encoded& sum) {
  sum.counts += more.counts;
  sum.changed_documents += more.changed_documents;
  sum.loss_tokens += more.loss_tokens;
  sum.chats += more.chats;
  sum.token_counts.resize(std::max(sum.token_counts.size(), more.token_counts.size()));
  for (size_t i = 0; i < more.token_counts.size(); ++i) sum.token_counts[i] += more.token_counts[i];
  sum.sources.resize(std::max(sum.sources.size(), more.sources.size()));
  for (size_t i = 0; i < more.sources.size(); ++i) {
    sum.sources[i].documents += more.sources[i].documents;
    sum.sources[i].tokens += more.sources[i].tokens;
    sum.sources[i].duplicates += more.sources[i].duplicates;
    sum.sources[i].rows += more.sources[i].rows;
  }
}

Json to_json(const Encoded& encoded) {
  const DocumentCounts& counts = encoded.counts;
  Json sources = Json::array();
  for (const SourceCounts& source : encoded.sources)
    sources.push_back({source.documents, source.tokens, source.duplicates, source.rows});
  return {{"counts",
           {counts.files, counts.documents, counts.bytes, counts.binary_files, counts.refused.count,
            counts.empty_documents}},
          {"first_refusals", counts.refused.first},
          {"changed_documents", encoded.changed_documents},
          {"loss_tokens", encoded.loss_tokens},
          {"chats", to_json(encoded.chats)},
          {"token_counts", encoded.token_counts},
          {"sources", std::move(sources)},
          {"file", encoded.file},
          {"read_documents", encoded.read_documents}};
}

Encoded encoded_from_json(const Json& state, const std::string& name) {
  Json json = state;
  base::take_new_names(json, "corpus.unfinished");
  Encoded encoded;
  const auto counts = base::require<std::vector<int64_t>>(json, "counts", name);
  int64_t* const fields[] = {&encoded.counts.files,         &encoded.counts.documents,
                             &encoded.counts.bytes,         &encoded.counts.binary_files,
                             &encoded.counts.refused.count, &encoded.counts.empty_documents};
  if (counts.size() != std::size(fields)) {
    throw base::InputError(base::text(name, " is damaged: remove its folder to begin anew"));
  }
  for (size_t i = 0; i < counts.size(); ++i) *fields[i] = counts[i];
  encoded.counts.refused.first = base::require<std::vector<std::string>>(json, "first_refusals", name);
  encoded.changed_documents = base::require<int64_t>(json, "changed_documents", name);
  encoded.loss_tokens = base::require<int64_t>(json, "loss_tokens", name);
  encoded.chats = chat_counts_from_json(base::require<Json>(json, "chats", name), name);
  encoded.token_counts = base::require<std::vector<int64_t>>(json, "token_counts", name);
  for (const auto& source : base::require<std::vector<std::vector<int64_t>>>(json, "sources", name)) {
    if (source.size() != 4)
      throw base::InputError(base::text(name, " is damaged: remove its folder to begin anew"));
    encoded.sources.push_back({source[0], source[1], source[2], source[3]});
  }
  encoded.file = base::require<int64_t>(json, "file", name);
  encoded.read_documents = base::require<int64_t>(json, "read_documents", name);
  return encoded;
}

namespace {

// Reads the documents in batches. A part reads its own documents, each with the counts of what was skipped
// behind it. Counts from in front of a file's first document belong to the part that owns the file's first
// byte.
class Reader {
 public:
  Reader(const std::vector<InputFile>& files, const EncodingOptions& options, Encoded& encoded,
         Pipeline& pipeline)
      : files_(files),
        options_(options),
        cuts_(files, options.part),
        first_(static_cast<size_t>(encoded.file)),
        skipped_(encoded.read_documents),
        pipeline_(pipeline),
        copies_(files, options.copies, [this](size_t file) { return is_wanted(file); }) {
    for (const InputFile& file : files) ends_.push_back(file.size_bytes + (ends_.empty() ? 0 : ends_.back()));
  }

  void read_all() {
    for (size_t file = 0; file < files_.size(); ++file) {
      if (is_wanted(file)) read(file);
      before_bytes_ = ends_[file];
    }
    batch_.file = std::ssize(files_);
    batch_.read_bytes = before_bytes_;
    pipeline_.add(std::move(batch_));
  }

 private:
  struct PartEnds {};  // thrown when the rest of the file belongs to another part

  bool is_wanted(size_t file) const {
    return file >= first_ && !cuts_.skips(ends_[file] - files_[file].size_bytes, ends_[file]);
  }

  void read(size_t file) {
    documents_ = 0;
    mine_ = cuts_.is_mine(before_bytes_);
    const DocumentCounts before = batch_.counts;
    try {
      read_documents(copies_.open(file), options_.documents, batch_.counts, [&](RawDocument&& document) {
        ++documents_;
        const int64_t at_bytes = before_bytes_ + document.read_bytes;
        if (file == first_ && documents_ <= skipped_) {
          if (documents_ == skipped_) batch_.counts = {};  // `encoded` has all counts so far
          mine_ = true;
          return;
        }
        if (cuts_.is_behind(at_bytes)) throw PartEnds{};
        if (!cuts_.is_mine(at_bytes)) return;
        if (!std::exchange(mine_, true)) batch_.counts = before;
        take(std::move(document), file, at_bytes);
      });
    } catch (const PartEnds&) {
    }
    if (!mine_) batch_.counts = before;
  }

  void take(RawDocument&& document, size_t file, int64_t at_bytes) {
    batch_bytes_ += document.bytes.size();
    batch_.read_bytes = at_bytes;
    batch_.documents.push_back(std::move(document));
    batch_.sources.push_back(static_cast<uint32_t>(files_[file].source));
    if (batch_.documents.size() < kBatchDocuments && batch_bytes_ < kBatchBytes) return;
    batch_.file = static_cast<int64_t>(file);
    batch_.read_documents = documents_;
    pipeline_.add(std::exchange(batch_, {}));
    batch_bytes_ = 0;
  }

  const std::vector<InputFile>& files_;
  const EncodingOptions& options_;
  const PartCuts cuts_;
  const size_t first_;     // number of the file at which an earlier build stopped
  const int64_t skipped_;  // documents of that file
  Pipeline& pipeline_;
  std::vector<int64_t> ends_;  // each file's end, all files laid end to end
  InputCopies copies_;
  Batch batch_;
  size_t batch_bytes_ = 0;
  int64_t before_bytes_ = 0;  // bytes of the files that are done
  int64_t documents_ = 0;     // documents read of the current file
  bool mine_ = false;         // whether the counts of skipped documents that follow are this part's
};

}  // namespace

void encode_files(const std::vector<InputFile>& files, const EncodingOptions& options,
                  const Tokenizer& tokenizer, IndexedWriter& writer, Encoded& encoded) {
  Pipeline pipeline(options, tokenizer, writer, encoded);
  Reader(files, options, encoded, pipeline).read_all();
  pipeline.finish();
}

}  // namespace sluice::corpus
