// sluice serve: an endpoint that speaks OpenAI's language.
#include <arpa/inet.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "cli/chat_options.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/number.h"
#include "cli/torch/generation.h"
#include "cli/torch/model_options.h"
#include "cli/torch/ranks.h"
#include "cli/torch_commands.h"
#include "generate/company.h"
#include "serve/server.h"
#include "train/evaluator.h"
#include "train/held_model.h"

namespace sluice::cli {

using base::text;

namespace {

constexpr int64_t kUsualContext = 4096;

struct ServeArguments : ModelOptions {
  std::filesystem::path tokenizer;
  corpus::ChatOptions chat;
  serve::ServerOptions server;
  std::optional<int64_t> context_length;
  double cache_gib = 4;
  int64_t most_texts = 64;
  int64_t most_waiting = 256;
  bool follow = false;
  int nproc = 1;
  std::string strategy;
  transport::Launch launch;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Ends `server` at a signal to stop, all of which main() has blocked in all threads.
class StopAtSignal {
 public:
  explicit StopAtSignal(serve::Server& server)
      : thread_([this, &server] {
          int signal = 0;
          sigwait(&signals_, &signal);
          if (!done_) base::log_info("told to stop: texts under way end here");
          server.stop();
        }) {}
  ~StopAtSignal() {
    done_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }

 private:
  sigset_t signals_ = base::stop_signals();
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

// Collective over the ranks of a model.
void take_up(const std::string& place, train::Evaluator& evaluator) {
  evaluator.reload([&] { return train::open_model(locate(place)); });
}

// Looks for a newer checkpoint of the run every so often, and has the engine take it between two texts.
class Follow {
 public:
  Follow(const storage::Location& location, std::string served, serve::Engine& engine,
         train::Evaluator& evaluator)
      : location_(location), served_(std::move(served)), engine_(engine), evaluator_(evaluator) {}
  ~Follow() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    constexpr std::chrono::seconds kPause{2};
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kPause, [this] { return done_; })) {
      lock.unlock();
      try {
        look();
      } catch (const base::Error& error) {
        tell(error.what());
      }
      lock.lock();
    }
  }

  void look() {
    const train::ModelSource newest = train::open_model(location_);
    if (newest.name() == served_) return;
    // The others open the same, whatever is newer by then.
    const std::string place =
        newest.checkpoint ? newest.checkpoint->directory().string() : location_.string();
    if (!engine_.between_texts([&] { take_up(place, evaluator_); }, place)) return;
    served_ = newest.name();
    base::log_info(text("serving ", served_));
  }

  // A run may be writing, or gone for a while: once is enough.
  void tell(const std::string& fault) {
    if (std::exchange(told_, fault) != fault) base::log_warning(text("serving ", served_, " still: ", fault));
  }

  const storage::Location location_;
  std::string served_;
  std::string told_;
  serve::Engine& engine_;
  train::Evaluator& evaluator_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_{[this] { run(); }};
};

void require_one_pipeline(const ServeArguments& options, const model::Shape& shape) {
  const int ranks = options.launch.world_size;
  if (ranks == 1) return;
  if (options.strategy.empty()) {
    throw base::InputError(text(ranks, " ranks serve one model: say how they have it between them with ",
                                "--strategy, as <", ranks, ",1,1>"));
  }
  const size_t pipelines =
      train::speaking_strategy(options.strategy, shape, ranks, "--strategy").pipelines.size();
  if (pipelines > 1) {
    throw base::InputError(text("--strategy is '", options.strategy, "', of ", pipelines,
                                " pipelines: start a server for each"));
  }
}

// The given length; else the one that the model was made for, up to a usual length.
int64_t context_length_of(const ServeArguments& options, const train::ModelSource& model) {
  if (!options.context_length) {
    const int64_t positions = positions_of(model);
    return positions < 2 ? kUsualContext : std::min(kUsualContext, positions);
  }
  warn_beyond_positions(model, *options.context_length, "--context-length", options.launch.rank);
  return *options.context_length;
}

void run(ServeArguments options) {
  const transport::Environment told = environment();
  if (const auto key = told.find("SLUICE_API_KEY"); key != told.end()) options.server.key = key->second;
  if (options.server.key.empty() && !is_loopback(options.server.host)) {
    throw base::InputError(
        text("--host ", options.server.host,
             " lets other machines in, and nobody is asked for a key: set SLUICE_API_KEY, or serve "
             "127.0.0.1"));
  }
  const sigset_t stopping = base::stop_signals();
  pthread_sigmask(SIG_BLOCK, &stopping, nullptr);
  train::ModelSource model = train::open_model(locate(options.model));
  require_one_pipeline(options, model.shape());
  options.server.context_length = context_length_of(options, model);
  const std::unique_ptr<corpus::Tokenizer> tokenizer =
      tokenizer_of(options.tokenizer, model, Needed::kForChats, options.chat);
  train::EvaluatorOptions evaluation = evaluation_of(options, model);
  evaluation.context_length = options.server.context_length;
  evaluation.launch = options.launch;
  evaluation.strategy = options.strategy;
  train::Evaluator evaluator(model, evaluation);
  const generate::HeldModel held = evaluator.held();
  const int64_t page_bytes = generate::Decoder::page_bytes(held);
  const int64_t wanted = (options.server.context_length / inference::kPageTokens + 1) * options.most_texts;
  const int64_t pages =
      std::min(wanted, generate::Decoder::pages_in(held, options.cache_gib * 0x1p30, options.most_texts));
  const generate::Decoder decoder(held, pages, options.most_texts);
  const inference::SchedulerOptions scheduler{.pages = pages, .most_texts = options.most_texts};
  options.server.end_tokens = end_tokens_of(model, tokenizer.get());
  const std::vector<base::Interval> never =
      corpus::rows_without_token(*tokenizer, model.shape().vocab, options.server.end_tokens);
  if (options.launch.rank > 0) {
    generate::Generator generator(decoder, scheduler, never);
    return generate::follow(evaluator.ranks(), generator, [&](const std::string& place) {
      try {
        take_up(place, evaluator);
      } catch (const base::InputError&) {  // which the leader tells
      }
    });
  }
  serve::Engine engine(decoder, {.scheduler = scheduler,
                                 .never = never,
                                 .most_waiting = options.most_waiting,
                                 .company = options.launch.world_size > 1 ? &evaluator.ranks() : nullptr});
  options.server.context_length = std::min(options.server.context_length, pages * inference::kPageTokens);
  options.server.vocabulary = model.shape().vocab;
  if (options.server.model.empty()) options.server.model = options.model;
  serve::Server server(engine, *tokenizer, options.server);
  std::optional<Follow> follow;
  if (options.follow) follow.emplace(locate(options.model), model.name(), engine, evaluator);
  const StopAtSignal stop(server);
  base::log_info(text("serving ", model.name(), " at http://", options.server.host, ":", server.port(),
                      "/v1; ", base::human_bytes(static_cast<double>(pages * page_bytes)), " of cache hold ",
                      base::human_count(pages * inference::kPageTokens, "token", "tokens"),
                      options.server.key.empty() ? "; nobody is asked for a key" : ""));
  server.run();
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
  command->add_option("--name", options->server.model, "What the model is called (default: --model)");
  command->add_flag("--follow", options->follow,
                    "Take up each newer checkpoint of the run, when no text is under way");
  command
      ->add_option("--context-length", options->context_length,
                   text("Most tokens of a prompt and its answer (default: ", kUsualContext,
                        ", or as many as the model has positions for where those are fewer)"))
      ->check(within(int64_t{2}, int64_t{1} << 30));
  command->add_option("--cache-gib", options->cache_gib, "Most memory for keys and values, GiB")
      ->check(within(1e-6, 1e6))
      ->capture_default_str();
  command->add_option("--texts", options->most_texts, "Most texts under way at once")
      ->check(within(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("--waiting", options->most_waiting,
                   "Most texts that may wait; more are refused with status 503")
      ->check(within(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--tokenizer", options->tokenizer, "Tokenizer, file or folder (default: the model's)");
  add_chat_options(*command, options->chat);
  command
      ->add_option("--nproc", options->nproc, "Serve on so many local ranks; 0: be one rank of the launcher")
      ->check(within(0, 4096))
      ->take_last()
      ->capture_default_str();
  command->add_option(
      "--strategy", options->strategy,
      "How several ranks have the model between them, as <4,1,1>: one pipeline of TP ranks and stages");
  add_python_option(*command);
  add_computing_options(*command, *options);
  command->callback(
      [options] { run_on_ranks(options->nproc, options->launch, [options] { run(*options); }); });
}

}  // namespace sluice::cli
