// sluice generate: generates outputs for prompts.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/chat_options.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/outputs.h"
#include "cli/torch/completions_file.h"
#include "cli/torch/generation.h"
#include "cli/torch/model_options.h"
#include "cli/torch/ranks.h"
#include "cli/torch_commands.h"
#include "corpus/continuation.h"
#include "generate/generator.h"
#include "profile/engine_step_prediction.h"
#include "run/evaluator.h"
#include "run/model_shard.h"
#include "serve/incremental_detokenizer.h"
#include "strategy/strategy.h"
#include "transport/gloo.h"

namespace sluice::cli {

using base::text;

namespace {

struct GenerateArguments : ModelOptions {
  LoraModules adapters;
  std::string adapter;  // for --prompt
  std::filesystem::path tokenizer;
  corpus::ChatOptions chat;
  std::string prompt;
  std::filesystem::path prompts;
  std::filesystem::path out;
  int64_t tokens = 64;
  int samples = 1;
  generate::Sampling sampling;
  std::vector<std::string> stops;
  double cache_gib = 4;
  int64_t most_texts = 64;
  int nproc = 1;
  std::string strategy;
  bool predict = false;
  bool json = false;
  transport::Launch launch;
};

// The rank's place among the ranks that generate together. Without a strategy each rank is alone.
struct RankPlace {
  strategy::Place place;
  int64_t pipelines = 1;
  int first_rank = 0;  // first of this rank's pipeline, which reports the outputs
  bool together = false;
  bool tells() const { return place.stage == 0 && place.lane == 0 && place.t == 0; }
};

RankPlace place_of(const GenerateArguments& options, const model::Model& model) {
  const int ranks = options.launch.world_size, own = options.launch.rank;
  if (options.strategy.empty())
    return {.place = {.pipeline = own}, .pipelines = ranks, .first_rank = own, .together = false};
  const strategy::Strategy strategy =
      run::parse_rollout_strategy(options.strategy, model, ranks, "--strategy");
  RankPlace place{.place = strategy::places(strategy, ranks)[static_cast<size_t>(own)],
                  .pipelines = std::ssize(strategy.pipelines),
                  .together = ranks > 1};
  place.first_rank = strategy.pipelines[static_cast<size_t>(place.place.pipeline)].rank_of(0, 0, 0);
  return place;
}

// The prompt's tokens at the beginning of a document.
std::vector<int64_t> tokens_of(const corpus::Tokenizer* tokenizer, const Prompt& prompt, int64_t vocabulary) {
  std::vector<int64_t> tokens = prompt.ids;
  if (!prompt.chat.empty()) {
    const corpus::EncodedChat chat = tokenizer->encode_prompts({&prompt.chat, 1}).front();
    if (!chat.fault.empty()) throw base::InputError(text(prompt.name, ": ", chat.fault));
    tokens.assign(chat.ids.begin(), chat.ids.end());
  } else if (tokens.empty()) {
    if (tokenizer->begin_id() >= 0) tokens.push_back(tokenizer->begin_id());
    for (const int32_t id : tokenizer->encode(prompt.text)) tokens.push_back(id);
  }
  if (tokens.empty()) {
    throw base::InputError(
        text(prompt.name, " has no token, and the tokenizer none to begin with: give it some text"));
  }
  for (const int64_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    throw base::InputError(text(prompt.name, " has token ", token, ", but the model's vocabulary has ",
                                vocabulary, " ids: name the model's own tokenizer with --tokenizer"));
  }
  return tokens;
}

// A rank's prompt, and the first of the sequences that it generates for it.
struct Task {
  Prompt prompt;
  std::vector<int64_t> tokens;
  int64_t first_text = 0;
};

// The adapter's index; -1: the model itself answers.
int adapter_of(const Prompt& prompt, const std::vector<std::string>& adapters) {
  if (prompt.model.empty()) return -1;
  const auto found = std::ranges::find(adapters, prompt.model);
  if (found != adapters.end()) return static_cast<int>(found - adapters.begin());
  throw base::InputError(
      text(prompt.name, " is for the model '", prompt.model, "', which --adapter ",
           adapters.empty() ? "does not name" : text("does not have: it has ", base::join(adapters, ", "))));
}

std::string text_of(const Task& task, const generate::Output& output, const corpus::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "";
  return corpus::Behind(*tokenizer, task.tokens).text(output.tokens);
}

// A prompt as its file has it: a text or messages; the text of token ids.
void add_prompt(const Task& task, const corpus::Tokenizer* tokenizer, base::Json& line) {
  const Prompt& prompt = task.prompt;
  if (!prompt.chat.empty()) {
    line["messages"] = base::parse_python_json(prompt.chat, prompt.name).at("messages");
  } else if (prompt.ids.empty() || tokenizer == nullptr) {
    line["prompt"] = prompt.text;
  } else {
    line["prompt"] = tokenizer->decode({prompt.ids.begin(), prompt.ids.end()});
  }
}

base::Json output_json(const Task& task, int sample, const generate::Output& output,
                       const GenerateArguments& options, const corpus::Tokenizer* tokenizer) {
  base::Json line = {{"index", task.prompt.index}, {"sample", sample}};
  add_prompt(task, tokenizer, line);
  line["text"] = serve::truncate_at_stop(text_of(task, output, tokenizer), options.stops);
  line["prompt_tokens"] = static_cast<int64_t>(task.tokens.size());
  line["ids"] = output.tokens;
  line["logprobs"] = output.log_probabilities;
  line["finish_reason"] = output.finish_reason ? "stop" : "length";
  return line;
}

// KV blocks for as many running sequences as there may be, the longest ones at full length; at most as many
// as memory allows.
int64_t pages_for(const std::vector<Task>& tasks, const GenerateArguments& options, int64_t most_texts,
                  const generate::ModelShard& model) {
  std::vector<int64_t> pages;
  for (const Task& task : tasks) {
    const int64_t tokens = static_cast<int64_t>(task.tokens.size()) + options.tokens;
    pages.insert(pages.end(), static_cast<size_t>(options.samples), tokens / inference::kKvBlockTokens + 1);
  }
  std::ranges::sort(pages, std::greater());
  int64_t wanted = 0;
  for (size_t i = 0; i < std::min(pages.size(), static_cast<size_t>(most_texts)); ++i) wanted += pages[i];
  return std::min(wanted, generate::Decoder::kv_blocks_in(model, options.cache_gib * 0x1p30, most_texts));
}

void log_speed(const generate::Generator& generator, double seconds,
               const std::optional<profile::EngineStepPrediction>& prediction) {
  const auto rate = static_cast<double>(generator.generated_tokens()) / std::max(seconds, 1e-9);
  const int64_t evictions = generator.scheduler().preemptions();
  base::log_info(text("generated ", base::human_count(generator.generated_tokens(), "token", "tokens"),
                      " in ",
                      base::human_count(generator.scheduler().total_sequences(), "sequence", "sequences"),
                      ", ", base::human_count(static_cast<int64_t>(rate)), " tokens/s, ",
                      base::human_count(generator.engine_steps(), "engine step", "engine steps"),
                      prediction ? text(", which should take ", base::human_duration(prediction->ns()),
                                        " and took ", base::human_duration(std::llround(seconds * 1e9)))
                                 : "",
                      evictions > 0 ? text("; ", base::human_count(evictions, "preemption", "preemptions"),
                                           " for want of KV cache: raise --kv-cache-gib")
                                    : ""));
}

// Calls take(task, generator) on the reporting rank when all samples of a prompt have ended, and erases them.
// Collective over all ranks that share the model.
template <typename Take>
void generate_all(run::ModelSource& model, const GenerateArguments& options, const RankPlace& place,
                  const corpus::Tokenizer* tokenizer, std::vector<Task>& tasks, Take take) {
  int64_t longest = 0;
  for (const Task& task : tasks) longest = std::max(longest, static_cast<int64_t>(task.tokens.size()));
  run::EvaluatorOptions evaluation = evaluation_of(options, model);
  evaluation.context_length = longest + options.tokens;
  warn_beyond_positions(model, evaluation.context_length, "the longest prompt with --tokens",
                        options.launch.rank);
  if (place.together) {
    evaluation.launch = options.launch;
    evaluation.strategy = options.strategy;
  } else {  // alone with its model; ranks only share the machine
    evaluation.launch.local_rank = options.launch.local_rank;
    evaluation.launch.local_size = options.launch.local_size;
  }
  run::Evaluator evaluator(model, evaluation);
  generate::ModelShard shard = evaluator.model_shard();
  const std::vector<std::string> adapters = options.adapters.names("");
  shard.adapters = std::ssize(adapters);
  const int64_t most_texts = std::clamp<int64_t>(std::ssize(tasks) * options.samples, 1, options.most_texts);
  const int64_t pages = pages_for(tasks, options, most_texts, shard);
  const generate::Decoder decoder(shard, pages, most_texts);
  generate::SamplingParams sampling_params{.sampling = options.sampling};
  sampling_params.end_tokens = end_tokens_of(model, tokenizer);
  std::vector<base::Interval> never;
  if (tokenizer != nullptr)
    never = corpus::rows_without_token(*tokenizer, model.model().vocab(), sampling_params.end_tokens);
  generate::Generator generator(decoder, {.kv_blocks = pages, .max_num_seqs = most_texts}, std::move(never));
  for (Task& task : tasks) {
    if (!options.stops.empty())
      sampling_params.stop_condition = serve::ends_at_stop(*tokenizer, task.tokens, options.stops);
    sampling_params.number = static_cast<uint64_t>(task.prompt.index);
    inference::Request request{task.tokens, options.tokens, options.samples};
    request.adapter = adapter_of(task.prompt, adapters);
    task.first_text = generator.add(request, sampling_params);
  }
  std::optional<profile::EngineStepPrediction> prediction;
  if (options.predict) prediction.emplace(shard, options.sampling);
  const auto begin = std::chrono::steady_clock::now();
  std::optional<base::Progress> progress;
  if (place.tells())
    progress.emplace("generating", static_cast<int64_t>(tasks.size()) * options.samples * options.tokens);
  int64_t closed = 0;  // tokens of answered prompts, as if each sample had its maximum length
  // True if the prompt is answered; otherwise adds its tokens.
  const auto close = [&](const Task& task, int64_t& tokens) {
    const int64_t end = task.first_text + options.samples;
    int ended = 0;
    for (int64_t text = task.first_text; text < end; ++text) {
      const bool finished = generator.finished(text);
      ended += finished ? 1 : 0;
      tokens += finished ? options.tokens : static_cast<int64_t>(generator.output(text).tokens.size());
    }
    if (ended < options.samples) return false;
    if (place.tells()) take(task, generator);
    for (int64_t text = task.first_text; text < end; ++text) generator.abort(text);
    return true;
  };
  bool more = true;
  while (more) {
    more = generator.step();
    if (more && prediction) prediction->add(generator.last_engine_step());
    int64_t open = 0;
    std::erase_if(tasks, [&](const Task& task) {
      int64_t tokens = 0;
      const bool answered = close(task, tokens);
      (answered ? closed : open) += tokens;
      return answered;
    });
    if (progress) progress->set(closed + open);
  }
  if (place.tells()) {
    progress->finish();
    log_speed(generator, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
              prediction);
  }
  if (place.together) evaluator.wait_for_all();  // all have generated
}

void answer_one(const GenerateArguments& options) {
  run::ModelSource model = run::open_model(locate(model_folder(options.model)));
  const std::unique_ptr<corpus::Tokenizer> tokenizer = tokenizer_of(options.tokenizer, model, Needed::kYes);
  options.adapters.add_to(model);
  Prompt prompt{.name = "the prompt", .text = options.prompt};
  prompt.model = options.adapter;
  if (prompt.text == "-") prompt.text.assign(std::istreambuf_iterator<char>(std::cin), {});
  std::vector<Task> tasks{{prompt, tokens_of(tokenizer.get(), prompt, model.model().vocab())}};
  const RankPlace place = place_of(options, model.model());
  if (place.pipelines > 1)
    throw base::InputError(text("--strategy is '", options.strategy, "', of ", place.pipelines,
                                " pipelines, and one --prompt is one pipeline's: give a file of --prompts"));
  generate_all(model, options, place, tokenizer.get(), tasks,
               [&](const Task& task, const generate::Generator& generator) {
                 for (int sample = 0; sample < options.samples; ++sample) {
                   base::Json json = output_json(task, sample, generator.output(task.first_text + sample),
                                                 options, tokenizer.get());
                   if (!options.json) {
                     std::cout << prompt.text << json["text"].get<std::string>() << "\n";
                     continue;
                   }
                   json["model"] = model.name();
                   std::cout << base::json_text(json, 2) << "\n";
                 }
               });
}

// Each pipeline has the whole model and prompts of its own. Until all are answered, outputs are in files
// beside the final one, from which a restarted command continues.
void answer_file(const GenerateArguments& options) {
  run::ModelSource model = run::open_model(locate(model_folder(options.model)));
  options.adapters.add_to(model);
  const std::vector<Prompt> prompts = read_prompts(options.prompts);
  const auto any = [&](auto is) { return std::ranges::any_of(prompts, is); };
  const bool chats = any([](const Prompt& prompt) { return !prompt.chat.empty(); });
  const bool texts = !options.stops.empty() || any([](const Prompt& prompt) { return prompt.ids.empty(); });
  const std::unique_ptr<corpus::Tokenizer> tokenizer = tokenizer_of(options.tokenizer, model,
                                                                    chats   ? Needed::kForChats
                                                                    : texts ? Needed::kYes
                                                                            : Needed::kNo,
                                                                    options.chat);
  if (chats && !tokenizer->has_chats())
    throw base::InputError(text(options.prompts.string(),
                                " has messages, and the tokenizer no chat template: write "
                                "prompts, or name a chat model's tokenizer"));
  const base::Json about = {{"model", model.name()},           {"lora_modules", options.adapters.told},
                            {"prompts", hash_of(prompts)},     {"tokens", options.tokens},
                            {"samples", options.samples},      {"temperature", options.sampling.temperature},
                            {"top_k", options.sampling.top_k}, {"top_p", options.sampling.top_p},
                            {"min_p", options.sampling.min_p}, {"seed", options.sampling.seed},
                            {"stop", options.stops},           {"dtype", options.dtype}};
  const RankPlace place = place_of(options, model.model());
  CompletionsFile file(options.out, place.first_rank, about);
  std::vector<Task> tasks;
  for (const Prompt& prompt : prompts) {
    const bool own = prompt.index % place.pipelines == place.place.pipeline;
    if (own && !file.has(prompt.index))
      tasks.push_back({prompt, tokens_of(tokenizer.get(), prompt, model.model().vocab())});
  }
  if (!tasks.empty() || place.together) {
    generate_all(model, options, place, tokenizer.get(), tasks,
                 [&](const Task& task, const generate::Generator& generator) {
                   std::vector<base::Json> lines;
                   for (int sample = 0; sample < options.samples; ++sample)
                     lines.push_back(output_json(task, sample, generator.output(task.first_text + sample),
                                                 options, tokenizer.get()));
                   file.add(lines);
                 });
  }
  const auto join = [&](const auto&) {
    file.join(prompts.size());
    return std::string();
  };
  if (options.launch.world_size == 1 || place.together) {
    if (options.launch.rank == 0) join(0);
    return;
  }
  constexpr int64_t kPatienceNs = int64_t{30} * 24 * 3600 * 1'000'000'000;
  transport::rendezvous({.launch = options.launch, .join_timeout_ns = kPatienceNs}, "", join,
                        [](const auto&) {});
}

void run(const GenerateArguments& options) {
  generate::validate(options.sampling);
  if (options.prompts.empty() == options.prompt.empty())
    throw base::InputError(
        "generate goes on from one --prompt or from those in a file of --prompts: give one of the two");
  if (options.prompts.empty() && options.launch.world_size > 1 && options.strategy.empty()) {
    throw base::InputError(
        "one --prompt is one rank's: leave out --nproc, give a --strategy of one pipeline, or a file of "
        "--prompts");
  }
  if (!options.prompts.empty() && options.out.empty())
    throw base::InputError("--prompts are answered into a file: name it with --out");
  options.prompts.empty() ? answer_one(options) : answer_file(options);
}

void run_as_told(GenerateArguments options) {
  run_on_ranks(options.nproc, options.launch, [&] { run(options); });
}

void add_sampling(CLI::App& command, GenerateArguments& options) {
  generate::Sampling& sampling = options.sampling;
  command
      .add_option("--temperature", sampling.temperature, "Temperature of sampling; 0: the likeliest token")
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "Sample from so many of the likeliest tokens; 0: from all")
      ->capture_default_str();
  command
      .add_option("--top-p", sampling.top_p,
                  "Sample from the fewest likeliest tokens with this probability in sum")
      ->capture_default_str();
  command
      .add_option("--min-p", sampling.min_p,
                  "Sample from tokens with at least this part of the likeliest one's probability")
      ->capture_default_str();
  command
      .add_option("--stop", options.stops, "Text that ends a completion, and is left out of it; any number")
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--seed", sampling.seed, "Seed of sampling: the same seed gives the same completions")
      ->capture_default_str();
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", about_torch_command("generate"));
  auto options = std::make_shared<GenerateArguments>();
  add_model_option(*command, *options);
  options->adapters.add_option(*command);
  command->add_option("--prompt", options->prompt, "Text to go on from; - reads standard input");
  command->add_option("--prompts", options->prompts,
                      "File of prompts to go on from: a JSON line each, {\"prompt\": text}, {\"messages\": "
                      "[{\"role\": …, \"content\": …}, …]} or {\"ids\": [token, …]}");
  command
      ->add_option("--adapter-name", options->adapter,
                   "The adapter that answers --prompt; lines of --prompts name theirs as \"model\"")
      ->needs("--adapter")
      ->excludes("--prompts");
  add_chat_options(*command, options->chat);
  add_output(*command, "--out", options->out, Output::kFile,
             "File for the completions of --prompts, JSON Lines");
  command->add_option("--tokens,--max-tokens", options->tokens, "Most tokens to generate")
      ->check(within(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--samples,--n", options->samples, "Completions of each prompt")
      ->check(within(1, 1 << 20))
      ->capture_default_str();
  add_sampling(*command, *options);
  command->add_option("--kv-cache-gib", options->cache_gib, "Most memory for keys and values, GiB")
      ->check(within(1e-6, 1e6))
      ->capture_default_str();
  command->add_option("--max-num-seqs", options->most_texts, "Most sequences that run at once")
      ->check(within(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--tokenizer", options->tokenizer, "Tokenizer, file or folder (default: the model's)");
  add_python_option(*command);
  add_computing_options(*command, *options);
  command
      ->add_option("--nproc", options->nproc,
                   "Start this many local ranks, which share the prompts; 0: be one rank of the launcher")
      ->check(within(0, 4096))
      ->take_last()
      ->capture_default_str();
  command->add_option(
      "--strategy", options->strategy,
      "How ranks have the model between them, as 2x<4,1,1>: pipelines of TP ranks and stages, each "
      "with prompts of its own; without it each rank has all of it");
  command->add_flag(
      "--predict", options->predict,
      "Measure engine steps first, and compare their predicted time with the time taken at the end");
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->callback([options, command] {
    if (options->prompts.empty()) refuse_chat_options(*command, "give messages in a file of --prompts");
    run_as_told(*options);
  });
}

}  // namespace sluice::cli
