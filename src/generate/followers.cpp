#include "generate/followers.h"

#include <string>

#include "base/json_fields.h"
#include "comm/order.h"

namespace sluice::generate {
namespace {

base::Json to_json(const inference::Request& request, const SamplingParams& sampling_params) {
  const Sampling& sampling = sampling_params.sampling;
  return {{"prompt", request.prompt},
          {"max_tokens", request.max_tokens},
          {"samples", request.samples},
          {"prompt_logprobs", request.prompt_logprobs},
          {"client", request.client},
          {"adapter", request.adapter},
          {"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"logit_bias", sampling.logit_bias},
          {"repetition_penalty", sampling.repetition_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"seed", sampling.seed},
          {"number", sampling_params.number},
          {"alternatives", sampling_params.alternatives},
          {"end_tokens", sampling_params.end_tokens}};
}

void add_to(Generator& generator, const base::Json& json) {
  const auto value = [&](const char* key, auto& to) { json.at(key).get_to(to); };
  inference::Request request;
  value("prompt", request.prompt);
  value("max_tokens", request.max_tokens);
  value("samples", request.samples);
  value("prompt_logprobs", request.prompt_logprobs);
  value("client", request.client);
  value("adapter", request.adapter);
  SamplingParams sampling_params;
  Sampling& sampling = sampling_params.sampling;
  value("temperature", sampling.temperature);
  value("top_k", sampling.top_k);
  value("top_p", sampling.top_p);
  value("min_p", sampling.min_p);
  value("logit_bias", sampling.logit_bias);
  value("repetition_penalty", sampling.repetition_penalty);
  value("presence_penalty", sampling.presence_penalty);
  value("frequency_penalty", sampling.frequency_penalty);
  value("seed", sampling.seed);
  value("number", sampling_params.number);
  value("alternatives", sampling_params.alternatives);
  value("end_tokens", sampling_params.end_tokens);
  generator.add(request, sampling_params);
}

}  // namespace

void Followers::add(const inference::Request& request, const SamplingParams& sampling_params) {
  if (members_ != nullptr) calls_.push_back(to_json(request, sampling_params));
}

void Followers::abort(int64_t sequence) {
  if (members_ != nullptr) calls_.push_back(sequence);
}

void Followers::broadcast(const std::string& message) {
  if (members_ != nullptr) calls_.push_back(message);
  send(Command::kMessage);
}

void Followers::send(Command command) {
  if (members_ == nullptr) return;
  comm::send_order(*members_, {static_cast<int64_t>(command), calls_.empty() ? "" : calls_.dump()});
  calls_.clear();
}

void follow(comm::Communicator& members, Generator& generator, const MessageHandler& handle_message) {
  while (true) {
    const comm::Order order = comm::receive_order(members);
    if (!order.text.empty()) {
      for (const base::Json& call : base::parse_json(order.text, "the leader's calls")) {
        if (call.is_string()) {
          generator.settle();
          handle_message(call.get<std::string>());
          generator.preempt_all();
        } else {
          call.is_number() ? generator.abort(call.get<int64_t>()) : add_to(generator, call);
        }
      }
    }
    const auto command = static_cast<Followers::Command>(order.kind);
    if (command == Followers::Command::kEnd) return;
    if (command == Followers::Command::kEngineStep) generator.step();
  }
}

}  // namespace sluice::generate
