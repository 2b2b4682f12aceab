#include "learn/rollout_generator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "config/learnt_rewards.h"
#include "corpus/continuation.h"
#include "corpus/load_tokenizer.h"
#include "generate/generator.h"
#include "rl/reward_queue.h"
#include "run/learnt_turns.h"
#include "run/model_source.h"

namespace sluice::learn {
namespace {

using base::Json;
using base::text;

std::unique_ptr<corpus::Tokenizer> tokenizer_of(const config::RunConfig& config,
                                                const run::RunOptions& options) {
  for (const auto& [prefix, weight] : config.data.train) {
    const std::filesystem::path path = corpus::tokenizer_beside(prefix, options.corpora);
    if (!path.empty()) return corpus::load_tokenizer(path, {.tools = options.tools});
  }
  throw base::InputError(text("no tokenizer lies beside ", config.data.train.front().first,
                              ", by which responses are read: build the corpus with sluice corpus build"));
}

// Whether the prompt is in the pipeline's share: prompts go to the pipelines in turn.
bool is_of(size_t index, int pipeline, size_t pipelines) {
  return static_cast<int>(index % pipelines) == pipeline;
}

Json to_json(const std::vector<Response>& responses) {
  Json json = Json::array();
  for (const Response& response : responses)
    json.push_back({response.tokens, response.log_probabilities, response.finish_reason, response.reward,
                    response.learnt_reward, response.faulty});
  return json;
}

Response response_of(const generate::Output& output) {
  Response response{.tokens = {output.tokens.begin(), output.tokens.end()},
                    .log_probabilities = output.log_probabilities,
                    .finish_reason = output.finish_reason};
  if (output.end_token < 0) return response;
  response.tokens.push_back(static_cast<int32_t>(output.end_token));
  response.log_probabilities.push_back(output.end_log_probability);
  return response;
}

std::vector<Response> responses_from_json(const Json& json) {
  std::vector<Response> responses;
  for (const Json& response : json) {
    responses.push_back({response.at(0).get<std::vector<int32_t>>(),
                         response.at(1).get<std::vector<double>>(), response.at(2).get<bool>(),
                         response.at(3).get<double>(), response.at(4).get<double>(),
                         response.at(5).get<bool>()});
  }
  return responses;
}

}  // namespace

void tell_rollout(const RolloutTimes& times, const std::string& strategy, report::StepRecord& record) {
  record.rollout_ns = record.rollout_ns.value_or(0) + times.pull_ns + times.generation_ns;
  if (times.predicted_ns)
    record.rollout_predicted_ns = record.rollout_predicted_ns.value_or(0) + *times.predicted_ns;
  record.rollout_strategy = strategy;
  record.response_tokens = record.response_tokens.value_or(0) + times.tokens;
}

RolloutGenerator::RolloutGenerator(run::RunContext& run) : run_(run) {
  run.control().together("preparing rewards", [&] {
    const config::RlConfig& rl = run.config().rl;
    tokenizer_ = tokenizer_of(run.config(), run.options());
    corpus::PythonTools tools = run.options().tools;
    tools.option = "rl.python";
    tools.usual.insert(tools.usual.begin(), "python3");  // the interpreter that the function's writer uses
    if (!rl.python.empty()) tools.interpreter = rl.python;
    const bool stops = rl.on_bad_reward == config::OnBadReward::kStop;
    if (rl.rolls_out())
      reward_ = rl::make_reward(rl.reward, {.timeout_s = rl.reward_timeout_s,
                                            .load_s = std::max(600.0, 60 * rl.reward_timeout_s),
                                            .stops_at_fault = stops,
                                            .tools = tools});
    if (!run.config().model.hf.empty())
      end_tokens_ = run::end_tokens_in(storage::locate(run.config().model.hf, {}));
    if (tokenizer_->end_id() >= 0) end_tokens_.push_back(tokenizer_->end_id());
    for (const corpus::TurnEnd& end : run::learnt_turn_ends(run.config().data, run.options().corpora))
      end_tokens_.push_back(end.id);
  });
  if (!config::learnt_rewards(run.config().rl.reward).empty() && run.config().rl.rolls_out())
    learnt_rewards_ = std::make_unique<LearntRewards>(run);
}

bool RolloutGenerator::is_end(int64_t token) const {
  return std::ranges::find(end_tokens_, token) != end_tokens_.end();
}

std::string RolloutGenerator::text_of(std::span<const int32_t> tokens,
                                      std::span<const int32_t> before) const {
  while (!tokens.empty() && is_end(tokens.back())) tokens = tokens.first(tokens.size() - 1);
  return corpus::Behind(*tokenizer_, before).text(tokens);
}

void RolloutGenerator::tell_faults(std::span<const rl::Verdict> verdicts) const {
  const auto faulty = [](const rl::Verdict& verdict) { return !verdict.fault.empty(); };
  const auto first = std::ranges::find_if(verdicts, faulty);
  if (first == verdicts.end()) return;
  const bool drops = run_.config().rl.on_bad_reward == config::OnBadReward::kDrop;
  base::log_warning(text("the rewards of ", std::ranges::count_if(verdicts, faulty), " of ", verdicts.size(),
                         " responses failed", drops ? ", which are left out" : " and are 0",
                         " (rl.on_bad_reward): ", first->fault));
}

std::vector<std::vector<Response>> RolloutGenerator::generate_own(
    std::span<const std::vector<int32_t>> prompts, std::span<const uint64_t> numbers, int samples,
    int64_t most_tokens, SamplingMode sampling_params, const Ended& ended) {
  const config::RunConfig& config = run_.config();
  const strategy::Place place = strategy::places(
      run_.rollout_strategy().strategy(), run_.control().world_size())[static_cast<size_t>(run_.rank())];
  const int64_t pull_begin = base::now_ns();
  const generate::ModelShard model = run_.rollout_strategy().model_shard(run_.engine());
  times_.pull_ns = base::now_ns() - pull_begin;
  const int64_t begin = base::now_ns();

  const int64_t context = config.data.context_length;
  int64_t longest = 0;  // tokens that a sequence may come to
  for (const std::vector<int32_t>& prompt : prompts)
    longest = std::max(longest, std::min(context, std::ssize(prompt) + most_tokens));
  const int64_t pages_a_text = longest / inference::kKvBlockTokens + 1;
  const auto pipelines = std::ssize(run_.rollout_strategy().strategy().pipelines);
  const int64_t own_prompts = (std::ssize(prompts) + pipelines - 1) / pipelines;
  const inference::KvCacheBudget room{.cache_bytes = config.rl.kv_cache_gib * 0x1p30,
                                      .max_num_seqs = config.rl.max_num_seqs};
  const inference::SchedulerOptions options =
      inference::scheduler_options(model.sharding(), room, own_prompts * samples, longest);
  const int64_t pages = options.kv_blocks, most_texts = options.max_num_seqs;
  if (pages < pages_a_text) {
    throw base::InputError(text("[config] rl.kv_cache_gib is ", config.rl.kv_cache_gib, ", room for ",
                                pages * inference::kKvBlockTokens, " tokens, but a text may have ", longest,
                                ": raise it"));
  }
  const generate::Decoder decoder(model, pages, most_texts);
  generate::Generator generator(
      decoder, options, corpus::rows_without_token(*tokenizer_, model.context.model.vocab(), end_tokens_));
  generate::SamplingParams way{
      .sampling = {.temperature = sampling_params == SamplingMode::kGreedy ? 0.0 : 1.0,
                   .seed = static_cast<uint64_t>(config.data.seed)},
      .end_tokens = end_tokens_};
  std::vector<int64_t> first_texts(prompts.size(), -1);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (!is_of(i, place.pipeline, run_.rollout_strategy().strategy().pipelines.size())) continue;
    const std::vector<int64_t> prompt(prompts[i].begin(), prompts[i].end());
    way.number = numbers[i];
    first_texts[i] =
        generator.add({prompt, std::min<int64_t>(most_tokens, context - std::ssize(prompt)), samples}, way);
  }
  std::vector<std::vector<Response>> responses(prompts.size());
  std::vector<std::pair<size_t, int>> open;  // prompts and samples, on the pipeline's first rank
  for (size_t i = 0; i < prompts.size(); ++i) {
    const bool tells = place.stage == 0 && place.lane == 0 && place.t == 0;
    if (!tells || first_texts[i] < 0) continue;
    responses[i].resize(static_cast<size_t>(samples));
    for (int sample = 0; sample < samples; ++sample) open.emplace_back(i, sample);
  }
  while (generator.step()) {
    run_.activity().advance();
    std::erase_if(open, [&](const std::pair<size_t, int>& of) {
      const auto [prompt, sample] = of;
      const int64_t number = first_texts[prompt] + sample;
      if (!generator.finished(number)) return false;
      Response& response = responses[prompt][static_cast<size_t>(sample)];
      response = response_of(generator.output(number));
      if (ended) ended(prompt, sample, response);
      return true;
    });
  }
  times_.generation_ns = base::now_ns() - begin;
  return responses;
}

// Gives all pipelines' responses to every rank.
void RolloutGenerator::share(std::vector<std::vector<Response>>& responses) {
  Json own = Json::array();
  for (const std::vector<Response>& of_prompt : responses) own.push_back(to_json(of_prompt));
  times_.tokens = 0;
  const std::vector<std::string> of_ranks = run_.control().gather_texts(own.dump());
  const std::vector<strategy::Pipeline>& pipelines = run_.rollout_strategy().strategy().pipelines;
  for (size_t pipeline = 0; pipeline < pipelines.size(); ++pipeline) {
    const auto first = static_cast<size_t>(pipelines[pipeline].rank_of(0, 0, 0));
    const Json all = base::parse_json(of_ranks[first], "responses");
    for (size_t i = 0; i < responses.size(); ++i) {
      if (!is_of(i, static_cast<int>(pipeline), pipelines.size())) continue;
      responses[i] = responses_from_json(all.at(i));
      for (const Response& response : responses[i]) times_.tokens += std::ssize(response.tokens);
    }
  }
  for (int64_t* time_ns : {&times_.generation_ns, &times_.reward_ns})
    *time_ns = std::ranges::max(run_.control().gather(*time_ns));
}

std::vector<std::vector<Response>> RolloutGenerator::generate(std::span<const std::vector<int32_t>> prompts,
                                                              std::span<const uint64_t> numbers, int samples,
                                                              int64_t most_tokens,
                                                              SamplingMode sampling_params) {
  const auto activity = run_.activity().own("generating samples");
  std::vector<std::vector<Response>> responses =
      generate_own(prompts, numbers, samples, most_tokens, sampling_params);
  run_.engine().release();
  share(responses);
  return responses;
}

void RolloutGenerator::choose_layout(std::span<const std::vector<int32_t>> prompts) {
  std::vector<int64_t> lengths;
  for (const std::vector<int32_t>& prompt : prompts) lengths.push_back(std::ssize(prompt));
  const std::optional<inference::GenerationLayout> layout =
      run_.rollout_strategy().choose_for(lengths, earlier_lengths_);
  times_.predicted_ns = layout ? std::optional(layout->ns()) : std::nullopt;
}

void RolloutGenerator::remember_lengths(const std::vector<std::vector<Response>>& responses) {
  earlier_lengths_.clear();
  for (const std::vector<Response>& of_question : responses) {
    std::vector<int64_t>& lengths = earlier_lengths_.emplace_back();
    for (const Response& response : of_question) lengths.push_back(std::ssize(response.tokens));
  }
}

std::vector<Response> RolloutGenerator::respond(std::span<const std::vector<int32_t>> prompts,
                                                std::span<const uint64_t> numbers) {
  choose_layout(prompts);
  const std::vector<std::vector<Response>> responses =
      generate(prompts, numbers, 1, run_.config().rl.max_completion_length, SamplingMode::kSampled);
  remember_lengths(responses);
  std::vector<Response> only;
  for (const std::vector<Response>& of_prompt : responses) only.push_back(of_prompt.front());
  return only;
}

std::vector<std::vector<Response>> RolloutGenerator::generate_and_score(std::span<const rl::Prompt> questions,
                                                                        std::span<const uint64_t> numbers,
                                                                        int samples,
                                                                        SamplingMode sampling_params) {
  std::vector<std::vector<int32_t>> prompts;
  for (const rl::Prompt& question : questions) prompts.push_back(question.tokens);
  choose_layout(prompts);
  std::vector<std::vector<Response>> responses;
  rl::RewardQueue rewards(*reward_);
  std::vector<std::pair<size_t, int>> rewarded;  // in the order of the queue
  std::map<size_t, rl::RewardInput> asked;       // by question, without a response
  {
    const auto activity = run_.activity().own("generating responses");
    responses = generate_own(prompts, numbers, samples, run_.config().rl.max_completion_length,
                             sampling_params, [&](size_t question, int sample, const Response& response) {
                               const auto [known, added] = asked.try_emplace(question);
                               if (added) {
                                 const auto& [prompt, reference] = questions[question];
                                 known->second = {text_of(prompt), "", text_of(reference, prompt)};
                               }
                               rl::RewardInput answer = known->second;
                               answer.response = text_of(response.tokens, questions[question].tokens);
                               rewards.add(std::move(answer));
                               rewarded.emplace_back(question, sample);
                             });
    run_.engine().release();
  }
  const int64_t generated_ns = base::now_ns();
  run_.control().together("rewarding responses", [&] {
    const std::vector<rl::Verdict> found = rewards.finish();
    tell_faults(found);
    for (size_t i = 0; i < found.size(); ++i) {
      const auto [question, sample] = rewarded[i];
      Response& response = responses[question][static_cast<size_t>(sample)];
      response.reward = found[i].reward;
      response.faulty = !found[i].fault.empty();
    }
  });
  times_.reward_ns = base::now_ns() - generated_ns;
  share(responses);
  times_.reward_ns -= base::now_ns();
  if (learnt_rewards_) {
    learnt_rewards_->add_to(questions, responses);
    times_.learnt_rewards = learnt_rewards_->newest();
  }
  times_.reward_ns += base::now_ns();
  // Evaluations answer other questions, once each, greedily: their lengths do not predict the next rollout's.
  if (sampling_params == SamplingMode::kSampled) remember_lengths(responses);
  return responses;
}

}  // namespace sluice::learn
