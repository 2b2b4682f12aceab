// sluice serve: an endpoint with OpenAI's API.
#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "cli/chat_options.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/torch/generation.h"
#include "cli/torch/head_serving.h"
#include "cli/torch/model_options.h"
#include "cli/torch/ranks.h"
#include "cli/torch/serving.h"
#include "cli/torch_commands.h"
#include "generate/followers.h"
#include "ops/attention.h"
#include "run/evaluator.h"
#include "run/model_shard.h"
#include "serve/server.h"

namespace sluice::cli {

using base::text;

namespace {

constexpr int64_t kUsualContext = 4096;
// Tokens of an engine step. CPUs compute few rows as fast as many, and a newcomer waits for a layer of the
// step.
constexpr int64_t kBatchedTokensOnCpus = 192;
constexpr int64_t kBatchedTokens = inference::SchedulerOptions().max_num_batched_tokens;
constexpr int64_t kNewcomerSlots = 1;  // beside --max-num-seqs, for clients without running sequences

struct ServeArguments : ModelOptions {
  LoraModules adapters;
  std::filesystem::path tokenizer;
  corpus::ChatOptions chat;
  serve::ServerOptions server;
  std::string tool_format = "auto";
  std::optional<int64_t> context_length;
  double cache_gib = 4;
  int64_t max_num_seqs = 64;
  std::optional<int64_t> max_num_batched_tokens;
  int64_t max_queued = 4096;  // sequences, or texts of a head
  std::optional<int64_t> max_queued_of_client;
  double grace_s = 20;
  bool follow = false;
  int nproc = 1;
  std::string strategy;
  transport::Launch launch;
  std::shared_ptr<ServedBefore> before = std::make_shared<ServedBefore>();

  int64_t max_queued_per_client() const { return max_queued_of_client.value_or((max_queued + 1) / 2); }
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void require_one_pipeline(const ServeArguments& options, const model::Model& model) {
  const int ranks = options.launch.world_size;
  if (ranks == 1) return;
  if (options.strategy.empty()) {
    throw base::InputError(text(ranks, " ranks serve one model: say how they have it between them with ",
                                "--strategy, as <", ranks, ",1,1>"));
  }
  const size_t pipelines =
      run::parse_rollout_strategy(options.strategy, model, ranks, "--strategy").pipelines.size();
  if (pipelines > 1) {
    throw base::InputError(text("--strategy is '", options.strategy, "', of ", pipelines,
                                " pipelines: start a server for each"));
  }
}

// The given length; else the model's positions, up to a usual length.
int64_t context_length_of(const ServeArguments& options, const run::ModelSource& model) {
  if (!options.context_length) {
    const int64_t positions = text_tokens_of(options, model);
    return positions < 2 ? kUsualContext : std::min(kUsualContext, positions);
  }
  warn_beyond_positions(model, *options.context_length, "--context-length", options.launch.rank);
  return *options.context_length;
}

// Keys are separated by commas.
std::vector<std::string> keys_of(const transport::Environment& told) {
  std::vector<std::string> keys;
  const auto found = told.find("SLUICE_API_KEY");
  std::istringstream rest(found == told.end() ? "" : found->second);
  for (std::string key; std::getline(rest, key, ',');) {
    if (!key.empty()) keys.push_back(key);
  }
  return keys;
}

void require_key_for_others(const serve::ServerOptions& server) {
  if (!server.keys.empty() || is_loopback(server.host)) return;
  throw base::InputError(text("--host ", server.host,
                              " lets other machines in, without an API key: set SLUICE_API_KEY, or serve "
                              "127.0.0.1"));
}

// The chat templates that go with a tokenizer, one after the other.
std::string templates_of(std::filesystem::path tokenizer, const corpus::ChatOptions& chat) {
  if (std::filesystem::is_directory(tokenizer)) tokenizer /= "tokenizer.json";
  const std::string told = corpus::template_text(chat, tokenizer);
  const std::filesystem::path config = tokenizer.parent_path() / "tokenizer_config.json";
  if (!told.empty() || !std::filesystem::exists(config)) return told;
  const base::Json json = base::read_python_json(config);
  const base::Json* const own = base::find(json, "chat_template");
  if (own == nullptr) return "";
  if (own->is_string()) return own->get<std::string>();
  std::string all;
  for (const base::Json& each : *own) {
    const base::Json* const one = each.is_object() ? base::find(each, "template") : nullptr;
    if (one != nullptr && one->is_string()) all += one->get<std::string>();
  }
  return all;
}

const serve::ToolFormat* tool_format_of(const ServeArguments& options, const run::ModelSource& model) {
  if (options.tool_format == "none") return nullptr;
  if (options.tool_format == "auto")
    return serve::tool_format_of_template(
        templates_of(find_tokenizer(options.tokenizer, model), options.chat));
  if (const serve::ToolFormat* const format = serve::tool_format_named(options.tool_format)) return format;
  throw base::InputError(text("--tool-format is '", options.tool_format, "': give auto, none, or one of ",
                              serve::tool_format_names()));
}

// Loads a newer model of the run when the first rank asks for it.
void take_newer(const std::string& place, run::Evaluator& evaluator) {
  try {
    take_up(place, evaluator);
  } catch (const base::InputError&) {  // the first rank reports it
  }
}

// A rank that follows the first rank's commands.
void follow_first(run::Evaluator& evaluator, const generate::Decoder& decoder,
                  const inference::SchedulerOptions& scheduler, const std::vector<base::Interval>& never) {
  generate::Generator generator(decoder, scheduler, never);
  generate::follow(evaluator.ranks(), generator,
                   [&](const std::string& place) { take_newer(place, evaluator); });
}

// The same for a model that ends in a head.
void follow_first(run::Evaluator& evaluator) {
  serve::follow(evaluator.ranks(), {[&](const serve::TokenTexts& texts) { evaluator.text_numbers(texts); },
                                    [&](const std::string& place) { take_newer(place, evaluator); }});
}

// Puts an IPv6 address into brackets: its colons would otherwise begin the port (RFC 3986, 3.2.2).
std::string host_in_url(const std::string& host) {
  return host.find(':') == host.npos ? host : "[" + host + "]";
}

// Answers until a stop signal. `note` describes the server's bounds for the log.
void answer_requests(serve::Server& server, serve::RequestEngine& engine, run::Evaluator& evaluator,
                     const run::ModelSource& model, const ServeArguments& options, const std::string& note) {
  options.before->serves_at(server.port());
  std::optional<Follow> follow;
  if (options.follow) follow.emplace(locate(options.model), model.name(), engine, server, evaluator);
  using AtFault = StopAtSignal::AtFault;
  const StopAtSignal stop(server, engine, options.grace_s,
                          options.launch.world_size > 1 ? AtFault::kStop : AtFault::kAnswerOn);
  base::log_info(text("serving ", model.name(), " at http://", host_in_url(options.server.host), ":",
                      server.port(), "/v1; ", note,
                      options.server.keys.empty() ? "; without an API key" : ""));
  server.run();
  if (options.launch.world_size > 1 && !engine.fault().empty()) end_process(base::RunError(engine.fault()));
}

void serve_head(ServeArguments& options, const run::ModelSource& model, const corpus::Tokenizer& tokenizer,
                run::Evaluator& evaluator) {
  options.server.head = served_head(model);
  serve::require_pair_template(options.server.pair_template);
  if (options.launch.rank > 0) return follow_first(evaluator);
  serve::HeadEngine engine(head_numbers_of(evaluator),
                           {.max_num_batched_tokens = options.max_num_batched_tokens.value_or(kBatchedTokens),
                            .max_queued_texts = options.max_queued,
                            .max_queued_texts_of_client = options.max_queued_per_client(),
                            .followers = options.launch.world_size > 1 ? &evaluator.ranks() : nullptr});
  serve::Server server(engine, tokenizer, options.server);
  answer_requests(server, engine, evaluator, model, options,
                  "the model " + options.server.head.description());
}

void serve_text(ServeArguments& options, const run::ModelSource& model, const corpus::Tokenizer& tokenizer,
                run::Evaluator& evaluator) {
  generate::ModelShard shard = evaluator.model_shard();
  shard.adapters = std::ssize(options.server.adapters);
  const int64_t slots = options.max_num_seqs + kNewcomerSlots;
  const int64_t wanted = (options.server.context_length / inference::kKvBlockTokens + 1) * slots;
  const int64_t kv_blocks =
      std::min(wanted, generate::Decoder::kv_blocks_in(shard, options.cache_gib * 0x1p30, slots));
  const generate::Decoder decoder(shard, kv_blocks, slots);
  const inference::SchedulerOptions scheduler{
      .kv_blocks = kv_blocks,
      .max_num_seqs = slots,
      .newcomer_slots = kNewcomerSlots,
      .max_num_batched_tokens = options.max_num_batched_tokens.value_or(
          shard.like.device().is_cpu() ? kBatchedTokensOnCpus : kBatchedTokens)};
  const int64_t longest = std::min(options.server.context_length, kv_blocks * inference::kKvBlockTokens);
  ops::prepare_attention({std::max(longest, scheduler.max_num_batched_tokens), longest},
                         dependencies_directory(), shard.like.device());
  options.server.end_tokens = end_tokens_of(model, &tokenizer);
  const std::vector<base::Interval> never =
      corpus::rows_without_token(tokenizer, model.model().vocab(), options.server.end_tokens);
  if (options.launch.rank > 0) return follow_first(evaluator, decoder, scheduler, never);
  serve::Engine engine(decoder, {.scheduler = scheduler,
                                 .never = never,
                                 .max_queued_requests = options.max_queued,
                                 .max_queued_requests_of_client = options.max_queued_per_client(),
                                 .followers = options.launch.world_size > 1 ? &evaluator.ranks() : nullptr});
  options.server.context_length = longest;
  options.server.tool_format = tool_format_of(options, model);
  serve::Server server(engine, tokenizer, options.server);
  const auto bytes = static_cast<double>(kv_blocks * generate::Decoder::kv_block_bytes(shard));
  answer_requests(server, engine, evaluator, model, options,
                  text(base::human_bytes(bytes), " of cache hold ",
                       base::human_count(kv_blocks * inference::kKvBlockTokens, "token", "tokens")));
}

void run(ServeArguments options) {
  options.server.keys = keys_of(environment());
  require_key_for_others(options.server);
  const sigset_t stopping = base::stop_signals();
  pthread_sigmask(SIG_BLOCK, &stopping, nullptr);
  if (options.server.model.empty()) options.server.model = options.model;
  options.model = model_folder(options.model);
  run::ModelSource model = run::open_model(locate(options.model));
  const bool head = ends_in_head(model);
  options.server.adapters = options.adapters.names(options.server.model);
  if (options.follow && !options.adapters.empty())
    throw base::InputError(
        "--follow takes up other weights, and adapters belong to these: give one of the two");
  if (head && !options.adapters.empty())
    throw base::InputError(text(model.name(),
                                " ends in a head, and adapters are served beside a model that "
                                "generates: export the tuned model, merged, and serve that folder"));
  options.adapters.add_to(model);
  if (!head) require_one_pipeline(options, model.model());
  options.server.context_length = context_length_of(options, model);
  const std::unique_ptr<corpus::Tokenizer> tokenizer =
      tokenizer_of(options.tokenizer, model, Needed::kForChats, options.chat);
  run::EvaluatorOptions evaluation = evaluation_of(options, model);
  evaluation.context_length = options.server.context_length;
  evaluation.launch = options.launch;
  evaluation.strategy = options.strategy;
  run::Evaluator evaluator(model, evaluation);
  options.server.vocabulary = model.model().vocab();
  options.server.fingerprint = fingerprint_of(model);
  if (options.before->port() != 0) options.server.port = options.before->port();
  head ? serve_head(options, model, *tokenizer, evaluator)
       : serve_text(options, model, *tokenizer, evaluator);
}

void add_head_options(CLI::App& command, ServeArguments& options) {
  command
      .add_option("--max-num-batched-tokens", options.max_num_batched_tokens,
                  text("Most tokens of an engine step: fewer let new clients in sooner, more compute long "
                       "prompts faster (default: ",
                       kBatchedTokens, "; ", kBatchedTokensOnCpus, " where a CPU generates text)"))
      ->check(within(int64_t{1}, int64_t{1} << 40));
  command.add_option("--pair-template", options.server.pair_template,
                     "Models with a score: a query and a document as one text (default: {query}, "
                     "a line end, {document})");
}

void add_generation_options(CLI::App& command, ServeArguments& options) {
  command
      .add_option("--context-length", options.context_length,
                  text("Most tokens of a prompt and its answer (default: ", kUsualContext,
                       ", or as many as the model has positions for where those are fewer)"))
      ->check(within(int64_t{2}, int64_t{1} << 30));
  command.add_option("--kv-cache-gib", options.cache_gib, "Most memory for keys and values, GiB")
      ->check(within(1e-6, 1e6))
      ->capture_default_str();
  command.add_option("--max-num-seqs", options.max_num_seqs, "Most sequences that run at once")
      ->check(within(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option("--tool-format", options.tool_format,
                  text("How the model writes calls of tools: ", serve::tool_format_names(),
                       "; none; or auto, as its chat template says"))
      ->capture_default_str();
}

// Adds the bounds on resources that clients may take from the server.
void add_bounds(CLI::App& command, ServeArguments& options) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto bound = [&](const char* name, int64_t& value, const char* what) {
    command.add_option(name, value, what)->check(within(int64_t{1}, kMost))->capture_default_str();
  };
  const auto seconds = [&](const char* name, double& value, const char* what) {
    command.add_option(name, value, what)->check(within(0.01, 1e6))->capture_default_str();
  };
  serve::HttpLimits& http = options.server.http;
  serve::RequestLimits& requests = options.server.requests;
  bound("--max-queued-requests", options.max_queued,
        "Most sequences that may wait; more are refused with status 503");
  command
      .add_option("--waiting-per-client", options.max_queued_of_client,
                  "Most sequences of one client that may wait (default: half of --max-queued-requests)")
      ->check(within(int64_t{1}, kMost));
  bound("--connections", http.connections,
        "Most open connections; the longest idle one makes room for another");
  bound("--connections-per-client", http.connections_per_client,
        "Most open connections of one client; more get status 503");
  bound("--header-bytes", http.header_bytes, "Most bytes of a request's head: else status 431");
  bound("--body-bytes", http.body_bytes, "Most bytes of a request's body: else status 413");
  bound("--bodies-bytes", http.bodies_bytes, "Most bytes of all bodies that are being read: else status 503");
  bound("--json-entries", requests.json_entries, "Most values, keys and commas of a body's JSON");
  bound("--prompts", requests.prompts, "Most sequences that one request may ask for, prompts times n");
  bound("--stops", requests.stops, "Most stop texts, and most stop tokens, of a request");
  bound("--stop-bytes", requests.stop_bytes, "Most bytes of a stop text");
  bound("--logit-biases", requests.logit_biases, "Most tokens of logit_bias");
  bound("--embedding-numbers", requests.numbers, "Most numbers of the embeddings that one request asks for");
  seconds("--header-s", http.header_s, "Seconds for a request's head to come");
  seconds("--body-s", http.body_s, "Seconds for a request's body to come");
  seconds("--idle-s", http.idle_s, "Seconds that a connection may be idle between requests");
  seconds("--write-s", http.write_s, "Seconds for a client to take some of its answer");
  command.add_option("--grace", options.grace_s, "Seconds that requests under way have to end after SIGTERM")
      ->check(within(0.0, 1e6))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", about_torch_command("serve"));
  auto options = std::make_shared<ServeArguments>();
  add_model_option(*command, *options);
  command->add_option("--host", options->server.host, "Address to listen at")->capture_default_str();
  command->add_option("--port", options->server.port, "Port to listen at; 0: any")
      ->check(within(0, 65535))
      ->capture_default_str();
  options->adapters.add_option(*command);
  command->add_option("--name", options->server.model, "What the model is called (default: --model)");
  command->add_flag("--follow", options->follow,
                    "Take up each newer checkpoint of the run, between two steps");
  add_generation_options(*command, *options);
  add_head_options(*command, *options);
  add_bounds(*command, *options);
  command->add_option("--tokenizer", options->tokenizer, "Tokenizer, file or folder (default: the model's)");
  add_chat_options(*command, options->chat);
  command
      ->add_option("--nproc", options->nproc, "Serve on so many local ranks; 0: be one rank of the launcher")
      ->check(within(0, 4096))
      ->take_last()
      ->capture_default_str();
  command->add_option("--strategy", options->strategy,
                      "How several ranks have the model between them, as <4,1,1>: one pipeline of TP ranks "
                      "and stages; of a model "
                      "that ends in a head any strategy (default: each rank has all of it)");
  add_python_option(*command);
  add_computing_options(*command, *options);
  command->callback([options] {
    run_on_ranks(
        options->nproc, options->launch, [options] { run(*options); },
        [options] { return options->before->begin_anew_after_ns(); });
  });
}

}  // namespace sluice::cli
