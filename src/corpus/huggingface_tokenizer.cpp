#include "corpus/huggingface_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace sluice::corpus {

namespace {

constexpr char kEncode = 'E';
constexpr char kEncodeChecked = 'B';
constexpr char kDecode = 'D';
constexpr char kChats = 'C';
constexpr char kPrompts = 'P';
constexpr char kOk = 'K';
constexpr char kLost = 'L';

void send_texts(PythonChild& child, char question, std::span<const std::string> texts) {
  child.send(&question, 1);
  child.send_number<uint64_t>(texts.size());
  for (const std::string& text : texts) child.send_text(text);
  child.check_status();
}

std::vector<int32_t> receive_ids(PythonChild& child) {
  std::vector<int32_t> ids(child.receive_number<uint64_t>());
  child.receive(ids.data(), ids.size() * sizeof(int32_t));
  return ids;
}

EncodedChat receive_chat(PythonChild& child) {
  EncodedChat chat;
  const auto status = child.receive_number<char>();
  if (status != kOk) {
    chat.lost = status == kLost;
    chat.fault = child.receive_text();
    return chat;
  }
  chat.counts = counts_of_notes(child.receive_text());
  chat.ids = receive_ids(child);
  chat.mask.resize(chat.ids.size());
  child.receive(chat.mask.data(), chat.mask.size());
  return chat;
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::filesystem::path& path, const TokenizerOptions& options)
    : tools_(options.tools), has_chats_(options.chats), more_children_(std::max(options.callers, 1) - 1) {
  if (!std::filesystem::exists(path)) {
    throw base::InputError(
        base::text("cannot read ", path.string(), ": there is no such file: name a tokenizer.json"));
  }
  arguments_ = {path.string(), options.begin_token, options.end_token, std::to_string(options.threads)};
  if (options.chats) arguments_.push_back(options_text(options.chat));
  Head head;
  idle_.push_back(start_child(head));
  vocabulary_ = head.vocabulary;
  begin_id_ = head.begin_id;
  end_id_ = head.end_id;
  gaps_ = head.gaps;
  later_bytes_ = {head.later_bytes.begin(), head.later_bytes.end()};
  require_end(options, path.string());
}

HuggingFaceTokenizer::Head HuggingFaceTokenizer::receive_head(PythonChild& child) {
  Head head{.vocabulary = child.receive_number<int64_t>(),
            .begin_id = child.receive_number<int32_t>(),
            .end_id = child.receive_number<int32_t>()};
  for (auto gaps = child.receive_number<uint64_t>(); gaps > 0; --gaps) {
    const auto begin = child.receive_number<int32_t>();
    head.gaps.push_back({begin, child.receive_number<int32_t>()});
  }
  head.later_bytes.resize(child.receive_number<uint64_t>());
  child.receive(head.later_bytes.data(), head.later_bytes.size() * sizeof(int32_t));
  return head;
}

std::unique_ptr<PythonChild> HuggingFaceTokenizer::start_child(Head& head) const {
  auto child = std::make_unique<PythonChild>(tools_, "hf_tokenize.py", arguments_, arguments_.front());
  head = receive_head(*child);
  return child;
}

std::unique_ptr<PythonChild> HuggingFaceTokenizer::take_child() const {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [&] { return !idle_.empty() || more_children_ > 0; });
  if (!idle_.empty()) {
    std::unique_ptr<PythonChild> child = std::move(idle_.back());
    idle_.pop_back();
    return child;
  }
  --more_children_;
  lock.unlock();
  try {
    Head same;
    return start_child(same);
  } catch (...) {
    const std::lock_guard again(mutex_);
    ++more_children_;
    released_.notify_one();
    throw;
  }
}

void HuggingFaceTokenizer::give_back(std::unique_ptr<PythonChild> child) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(child));
  released_.notify_one();
}

template <typename Ask>
auto HuggingFaceTokenizer::with_child(const Ask& ask) const {
  std::unique_ptr<PythonChild> child = take_child();
  const std::shared_ptr<void> release(nullptr, [&](void*) { give_back(std::move(child)); });
  try {
    return ask(*child);
  } catch (const base::InputError&) {
    throw;  // the child itself reported the error
  } catch (const ChildEnded& gone) {
    base::log_warning(base::text(gone.what(), "; another one is started"));
    child->restart();
    receive_head(*child);
    return ask(*child);
  } catch (...) {
    child->kill();  // the unread rest of its answer would precede the next one
    throw;
  }
}

std::vector<std::vector<int32_t>> HuggingFaceTokenizer::encode_all(std::span<const std::string> texts) const {
  return with_child([&](PythonChild& child) {
    send_texts(child, kEncode, texts);
    std::vector<std::vector<int32_t>> ids(texts.size());
    for (std::vector<int32_t>& each : ids) each = receive_ids(child);
    return ids;
  });
}

std::vector<EncodedText> HuggingFaceTokenizer::encode_checked(std::span<const std::string> texts) const {
  return with_child([&](PythonChild& child) {
    send_texts(child, kEncodeChecked, texts);
    std::vector<uint8_t> changed(texts.size());
    child.receive(changed.data(), changed.size());
    std::vector<EncodedText> encoded(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) encoded[i] = {receive_ids(child), changed[i] != 0};
    return encoded;
  });
}

std::vector<std::string> HuggingFaceTokenizer::decode_all(std::span<const std::vector<int32_t>> ids) const {
  return with_child([&](PythonChild& child) {
    child.send(&kDecode, 1);
    child.send_number<uint64_t>(ids.size());
    for (const std::vector<int32_t>& each : ids) {
      child.send_number<uint64_t>(each.size());
      child.send(each.data(), each.size() * sizeof(int32_t));
    }
    child.check_status();
    std::vector<std::string> texts(ids.size());
    for (std::string& each : texts) each = child.receive_text();
    return texts;
  });
}

std::vector<EncodedChat> HuggingFaceTokenizer::encode_by_template(char question,
                                                                  std::span<const std::string> chats) const {
  return with_child([&](PythonChild& child) {
    send_texts(child, question, chats);
    std::vector<EncodedChat> encoded;
    for (size_t i = 0; i < chats.size(); ++i) encoded.push_back(receive_chat(child));
    return encoded;
  });
}

std::vector<EncodedChat> HuggingFaceTokenizer::encode_chats(std::span<const std::string> chats) const {
  return encode_by_template(kChats, chats);
}

std::vector<EncodedChat> HuggingFaceTokenizer::encode_prompts(std::span<const std::string> chats) const {
  return encode_by_template(kPrompts, chats);
}

}  // namespace sluice::corpus
