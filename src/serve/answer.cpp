#include "serve/answer.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/continuation.h"
#include "serve/responses.h"

namespace sluice::serve {
namespace {

using base::InputError;
using base::text;

// Bytes of a stream that may wait for a slow client before more is written.
constexpr int64_t kMostBacklog = 65536;
constexpr int64_t kDefaultTokens = 16;  // OpenAI's default for completions

}  // namespace

void Answer::begin(const std::string& body, Endpoint endpoint, uint64_t seed) {
  try {
    request_ = context_.reader.read(body, endpoint, seed);
    if (request_.adapter >= 0) head_.model = context_.reader.adapters[static_cast<size_t>(request_.adapter)];
    // The connection keeps this answer alive until it is whole or the client has left.
    reply_->on_change([self = shared_from_this()] { self->changed(); });
    ask();
  } catch (...) {
    refuse(std::current_exception());
  }
}

// The number of tokens that may be generated for a prompt.
int64_t Answer::max_tokens(const std::vector<int64_t>& prompt) const {
  const int64_t left = context_.context_length - std::ssize(prompt);
  const int64_t by_default =
      request_.endpoint == Endpoint::kChat ? std::max<int64_t>(1, left) : kDefaultTokens;
  const int64_t wanted = request_.max_tokens.value_or(by_default);
  // The one token generated for a prompt that is only scored is not shown.
  if (wanted <= left) return std::max<int64_t>(1, wanted);
  throw InputError(text("the prompt has ", prompt.size(), " tokens and max_tokens is ", wanted,
                        ", together more than the ", context_.context_length,
                        " of this server: give a shorter prompt or ask for less"));
}

void Answer::ask() {
  generate::SamplingParams sampling_params{.sampling = request_.sampling,
                                           .end_tokens = context_.end_tokens,
                                           .alternatives = request_.logprobs ? request_.alternatives : 0};
  sampling_params.end_tokens.insert(sampling_params.end_tokens.end(), request_.stop_tokens.begin(),
                                    request_.stop_tokens.end());
  const auto news = request_.stream ? PendingRequest::News::kTokens : PendingRequest::News::kEnd;
  std::vector<int64_t> max_tokens_of;
  for (const std::vector<int64_t>& prompt : request_.prompts) max_tokens_of.push_back(max_tokens(prompt));
  ++calls_;  // no round begins before all prompts are added
  for (size_t i = 0; i < request_.prompts.size(); ++i) {
    const std::vector<int64_t>& prompt = request_.prompts[i];
    sampling_params.number = i;
    if (!request_.stops.empty())
      sampling_params.stop_condition = ends_at_stop(*context_.reader.tokenizer, prompt, request_.stops);
    const auto changed = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->changed();
    };
    inference::Request request{prompt, max_tokens_of[i], request_.samples,
                               request_.echo && request_.logprobs};
    request.adapter = request_.adapter;
    auto pending = context_.engine.add_request(client_, std::move(request), sampling_params, news, changed);
    if (pending == nullptr) {
      done_ = true;
      leave();
      return reply_->send(overloaded());
    }
    requests_.push_back(std::move(pending));
    for (int sample = 0; request_.stream && sample < request_.samples; ++sample)
      shown_.push_back({IncrementalDetokenizer(*context_.reader.tokenizer, prompt, request_.stops)});
  }
  texts_.resize(requests_.size());
  go_on();
}

// From any thread.
void Answer::changed() {
  if (!done_ && calls_++ == 0) go_on();
}

// Answers that take long to write have rounds of their own, so that they delay no others.
void Answer::go_on() {
  if (request_.stream && !request_.logprobs) return context_.rounds.add(shared_from_this());
  context_.pool.post(FairPool::Turn::kGoOn, client_, [self = shared_from_this()] {
    std::vector<std::shared_ptr<Answer>> alone{self};
    while (!alone.empty()) self->context_.rounds.advance(alone);
  });
}

void Rounds::add(std::shared_ptr<Answer> answer) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(answer));
    if (std::exchange(runs_, true)) return;
  }
  pool_.post(FairPool::Turn::kGoOn, "", [this] { run(); });
}

// Runs one round, so that other work has its turn in the pool.
void Rounds::run() {
  std::vector<std::shared_ptr<Answer>> answers;
  {
    const std::lock_guard lock(mutex_);
    answers.swap(waiting_);
  }
  advance(answers);
  {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), answers.begin(), answers.end());
    runs_ = !waiting_.empty();
    if (!runs_) return;
  }
  pool_.post(FairPool::Turn::kGoOn, "", [this] { run(); });
}

void Rounds::advance(std::vector<std::shared_ptr<Answer>>& answers) const {
  std::vector<corpus::Continuation> wanted;
  std::vector<size_t> counts;
  for (const auto& answer : answers) counts.push_back(answer->read_round(wanted));
  const auto decode = [&](std::span<const corpus::Continuation> tokens) {
    return tokens.empty() ? std::vector<std::string>() : corpus::texts_behind(tokenizer_, tokens);
  };
  std::optional<std::vector<std::string>> all;
  try {
    all = decode(wanted);
  } catch (const std::exception&) {  // decoded one by one below: one answer's fault spares the others
  }
  size_t begin = 0;
  for (size_t i = 0; i < answers.size(); begin += counts[i++]) {
    try {
      const auto own = std::span(wanted).subspan(begin, counts[i]);
      const std::vector<std::string> alone = all ? std::vector<std::string>() : decode(own);
      answers[i]->send_round(all ? std::span<const std::string>(*all).subspan(begin, counts[i]) : alone);
    } catch (...) {
      answers[i]->fail_round(std::current_exception());
    }
  }
  std::erase_if(answers, [](const auto& answer) { return answer->ends_round(); });
}

size_t Answer::read_round(std::vector<corpus::Continuation>& wanted) {
  calls_of_round_ = calls_;
  sends_ = false;
  const size_t before = wanted.size();
  if (done_) return 0;
  try {
    if (reply_->gone()) {
      done_ = true;
      leave();
      return 0;
    }
    if (request_.stream && reply_->backlog() > kMostBacklog) return 0;  // it calls when that has gone
    all_ended_ = read_news();
    sends_ = request_.stream || all_ended_;
    if (!request_.stream) return 0;
    auto shown = shown_.begin();
    for (const std::vector<PendingRequest::SequenceOutput>& prompt : texts_) {
      for (const PendingRequest::SequenceOutput& each : prompt) {
        if (auto more = shown++->text.pending(each.output)) wanted.push_back(std::move(*more));
      }
    }
  } catch (...) {
    sends_ = false;
    wanted.resize(before);
    refuse(std::current_exception());
  }
  return wanted.size() - before;
}

void Answer::send_round(std::span<const std::string> decoded) {
  if (!sends_) return;
  try {
    request_.stream ? send_news(all_ended_, decoded) : send_whole();
    done_ = all_ended_;
  } catch (...) {
    refuse(std::current_exception());
  }
}

bool Answer::ends_round() { return calls_.compare_exchange_strong(calls_of_round_, 0); }

// True: all outputs have ended.
bool Answer::read_news() {
  bool all_ended = true;
  for (size_t i = 0; i < requests_.size(); ++i) all_ended = requests_[i]->read(texts_[i]) && all_ended;
  return all_ended;
}

void Answer::send_whole() {
  const corpus::Tokenizer& tokenizer = *context_.reader.tokenizer;
  std::vector<Choice> choices;
  std::vector<corpus::Continuation> continuations;
  for (size_t prompt = 0; prompt < texts_.size(); ++prompt) {
    for (PendingRequest::SequenceOutput& each : texts_[prompt]) {
      if (request_.max_tokens == 0) each.output.tokens.clear();
      // The first sample alone has the scores of the prompt.
      if (each.output.prompt_logprobs.empty())
        each.output.prompt_logprobs = texts_[prompt].front().output.prompt_logprobs;
      continuations.push_back(
          corpus::continuation_of(tokenizer, request_.prompts[prompt], each.output.tokens));
      choices.push_back(
          {static_cast<int>(choices.size()), "", &each.output, &request_.prompts[prompt], true, {}});
    }
  }
  const std::vector<std::string> whole = corpus::texts_behind(tokenizer, continuations);
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i].text = truncate_at_stop(whole[i], request_.stops);
    if (request_.tools.empty()) continue;
    ParsedText parsed = parse_tool_calls(*context_.reader.tool_format, choices[i].text, request_.tools);
    if (!request_.parallel_tool_calls && parsed.calls.size() > 1) parsed.calls.resize(1);
    choices[i].calls = std::move(parsed.calls);
    if (!choices[i].calls.empty()) choices[i].text = std::move(parsed.content);
  }
  head_.fingerprint = context_.fingerprint();
  reply_->send(json_response(200, response_json(request_, head_, choices, tokenizer)));
}

void Answer::send_news(bool all_ended, std::span<const std::string> decoded) {
  if (!std::exchange(streaming_, true)) reply_->begin("text/event-stream");
  head_.fingerprint = context_.fingerprint();
  int index = 0;
  int64_t tokens = 0;
  for (size_t prompt = 0; prompt < texts_.size(); ++prompt) {
    for (const PendingRequest::SequenceOutput& each : texts_[prompt]) {
      Shown& shown = shown_[static_cast<size_t>(index)];
      tokens += std::ssize(each.output.tokens);
      std::optional<std::string> piece;
      if (shown.text.pending(each.output)) {
        piece = decoded.front();
        decoded = decoded.subspan(1);
      }
      if (!shown.ended)
        send_choice(shown, {index,
                            shown.text.new_text(each.output, each.finished, piece),
                            &each.output,
                            &request_.prompts[prompt],
                            each.finished,
                            {}});
      ++index;
    }
  }
  if (!all_ended) return;
  if (request_.stream_usage) send_chunk(usage_chunk_json(request_, head_, tokens));
  reply_->write("data: [DONE]\n\n");
  reply_->end();
}

void Answer::send_choice(Shown& shown, Choice choice) {
  shown.ended = choice.finished;
  if (!request_.tools.empty()) choice.text = part_to_show(shown, choice);
  if (choice.text.empty() && !choice.finished) return;
  send_chunk(chunk_json(request_, head_, choice, !std::exchange(shown.begun, true)));
}

// The content up to where a tool call may begin; at the end the calls, too.
std::string Answer::part_to_show(Shown& shown, Choice& choice) const {
  const ToolFormat& format = *context_.reader.tool_format;
  shown.held += choice.text;
  if (choice.finished) {
    ParsedText parsed = parse_tool_calls(format, shown.held, request_.tools);
    if (!request_.parallel_tool_calls && parsed.calls.size() > 1) parsed.calls.resize(1);
    choice.calls = std::move(parsed.calls);
    return parsed.content;
  }
  const size_t content = content_before_calls(format, shown.held);
  const std::string part = shown.held.substr(0, content);
  shown.held.erase(0, content);
  return part;
}

void Answer::send_chunk(const base::Json& json) { reply_->write("data: " + base::json_text(json) + "\n\n"); }

void Answer::refuse(const std::exception_ptr& fault) {
  done_ = true;
  leave();
  Response response = fault_response(fault, context_.failed);
  if (!streaming_) return reply_->send(std::move(response));
  // The status line is sent already, so an event tells of the fault, and no [DONE] follows.
  reply_->write("data: " + response.body + "\n\n");
  reply_->end();
}

void Answer::leave() {
  for (const auto& request : requests_) request->abort();
}

}  // namespace sluice::serve
