// Inputs that are read as whole files, or from a folder of them.
#include <fstream>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/toml.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "corpus/build.h"
#include "corpus/indexed.h"
#include "corpus/load_tokenizer.h"
#include "inputs.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/test_outline.h"
#include "mutate.h"
#include "program.h"
#include "report/page.h"
#include "report/run_files.h"
#include "strategy/cluster.h"

namespace sluice::fuzz {
namespace {

namespace fs = std::filesystem;
using base::Json;
using base::Rng;
using base::text;

const std::string kRunConfig = R"([model]
layers = 4
hidden = 128
heads = 4
kv_heads = 2
ffn_hidden = 336
vocab = 2048
rope_scaling = "linear"
[data]
train = [["corpora/stdlib/corpus", 1.0], ["other/corpus", 0.25]]
validation_fraction = 0.05
tokens_per_step = 4096
[train]
steps = 30
dtype = "float64"
freeze = ["model.embed_tokens", "model.layers.[0-2].*"]
[optimizer]
betas = [0.9, 0.95]
[[optimizer.groups]]
parameters = ["*.bias", "lm_head"]
lr = 1e-5
weight_decay = 0.0
[lora]
rank = 4
alpha = 8
targets = ["q_proj", "o_proj"]
[elastic]
snapshot_every = 3
[parallel]
strategies = ["1x<2,1,1> + 2x<1,1,1>", "<1,4,1>"]
select = "cycle"
[memory]
offload = 0.5
[checkpoint]
every = 5
keep_hours = 2
mirror = "other/disk"
[log]
dir = "runs/x"
trace_steps = [3, 17]
[[phase]]
step = 10
tokens_per_step = 8192
[[phase]]
step = 20
train = [["corpora/late/corpus", 0.5]]
context_length = 4096
seed = 4
)";

const std::string kCluster = R"(schema = "sluice.cluster/1"
name = "mine"
nodes = 2
gpus_per_node = 8
device_memory_bytes = 85_520_809_984
flops_per_ns = 495e3
intra_node = {bytes_per_ns = 360, latency_ns = 5e3}
inter_node = {bytes_per_ns = 40, latency_ns = 10e3}
nics_per_node = 8
host_bytes_per_ns = 48
host_memory_bytes = 2_199_023_255_552
)";

constexpr const char* kMetrics =
    R"({"system":"sluice","step":0,"tokens":900,"sequences":3,"strategy":"<1,1,1>","time_ms":12.5,"predicted_ms":12,"lower_bound_ms":11,"gap_ppm":90,"peak_bytes":5000,"loss":7.5,"tokens_per_s":800,"rank_time_ns":{"compute":900,"ring":1,"link":2,"update":3,"bubble":4,"idle":5,"between":6}}
{"system":"sluice","step":1,"tokens":800,"sequences":2,"strategy":"<2,1,1>","time_ms":11,"predicted_ms":12,"lower_bound_ms":10.5,"gap_ppm":0,"peak_bytes":6000,"loss":7.25,"tokens_per_s":700}
{"step":1,"validation_loss":7.4,"targets":600}
)";

constexpr const char* kTrace =
    R"({"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0"}},
{"ph":"X","name":"forward","cat":"cell","pid":0,"tid":1,"ts":0.000,"dur":2.500,"args":{"stage":0,"unit":1}},
{"ph":"X","name":"pull","cat":"pull","pid":1,"tid":2,"ts":1.000,"dur":3.250,"args":{"bytes":900}},
{"ph":"s","id":7,"pid":1,"tid":2,"ts":4.250,"name":"link"},
{"ph":"C","name":"memory","pid":0,"ts":2.500,"args":{"memory":4096}}
],"otherData":{"note":"all"}}
)";

Json sound_simulation() {
  return {
      {"schema", "sluice.simulation/1"},
      {"facts", {{"cluster", "8 GPUs"}, {"model", "small"}}},
      {"ranks", 2},
      {"hardware", "a800x8"},
      {"device_bytes", 90'000},
      {"lengths", {{17, 3}, {900, 1}}},
      {"systems", {{"sluice", {{"title", "Sluice"}}}, {"megatron", {{"title", "M"}, {"infeasible", "no"}}}}}};
}

checkpoint::Manifest sound_manifest() {
  checkpoint::Manifest manifest{.step = 3, .world_size = 2, .model = model::test_outline()};
  const model::ParameterTable table = model::parameter_table(manifest.model);
  for (int rank = 0; rank < 2; ++rank) {
    checkpoint::FileRecord file{.name = checkpoint::rank_file_name(rank), .bytes = 64, .checksum = 5};
    for (const model::Bucket& bucket : table.buckets) {
      file.intervals.push_back(base::even_part(bucket.size, 2, rank));
    }
    manifest.files.push_back(std::move(file));
  }
  manifest.sampler = {{"step", 3}};
  manifest.config = kRunConfig;
  return manifest;
}

// Not atomic: no reader meets it half-written, and a million of these need not reach the disk.
void put(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// A small corpus with its tokenizer.
fs::path built_corpus(const fs::path& scratch) {
  std::string bytes;
  for (int i = 0; i < 120; ++i)
    bytes += text("document ", i, " of a few words\n\n\n", std::string(i % 40, 'x'));
  put(scratch / "text.txt", bytes);
  corpus::BuildOptions options{
      .inputs = {scratch / "text.txt"}, .directory = scratch / "corpus", .train_vocabulary = 300};
  options.documents.delimiter = "\n\n\n";
  return corpus::build_corpus(options).prefix;
}

void read_config(const std::string& bytes) {
  const config::RunConfig config = config::parse_config(bytes, "case", {"train.steps=7"});
  const std::string written = config::to_toml(config);
  require(config::to_toml(config::parse_config(written, "again")) == written,
          "a configuration changes when it is read again");
}

void read_tokenizer(const fs::path& path) {
  const auto tokenizer = corpus::load_tokenizer(path);
  tokenizer->decode(tokenizer->encode("document of a few\n words \xE2\x96\x81"));
}

std::vector<Input> texts() {
  const Json outline = model::config_json(model::test_outline());
  return {
      {"run.toml", [](Rng& rng) { read_config(damage(kRunConfig, rng)); }},
      {"--set",
       [](Rng& rng) {
         config::parse_config(kRunConfig, "case",
                              {damage(std::string("parallel.strategies=[\"<2,1,1>\"]"), rng)});
       }},
      {"cluster.toml",
       [](Rng& rng) {
         strategy::cluster_from_json(base::parse_toml_as_json(damage(kCluster, rng), "case"), "case");
       }},
      {"config.json",
       [=](Rng& rng) { model::outline_from_hugging_face(damaged_json(outline, rng), "case"); }},
  };
}

std::vector<Input> run_directories(const fs::path& scratch) {
  const fs::path simulated = scratch / "simulated";
  const fs::path trained = scratch / "trained";
  for (const fs::path& directory : {simulated, trained}) {
    fs::create_directories(directory);
    put(directory / "metrics.jsonl", kMetrics);
    put(directory / "trace-1.json", kTrace);
  }
  base::write_json(simulated / "simulation.json", sound_simulation());
  put(trained / "config.toml", kRunConfig);
  const auto report = [](const fs::path& path) { report::report_page(report::read_run(path.parent_path())); };
  std::vector<Input> inputs;
  for (const fs::path& path :
       {simulated / "metrics.jsonl", simulated / "trace-1.json", simulated / "simulation.json",
        trained / "metrics.jsonl", trained / "trace-1.json", trained / "config.toml"}) {
    inputs.push_back({"report of " + path.filename().string(), damaged_file(path, report)});
  }
  return inputs;
}

std::vector<Input> stored(const fs::path& scratch) {
  const fs::path prefix = built_corpus(scratch);
  const auto open_corpus = [prefix](const fs::path&) {
    const corpus::IndexedCorpus corpus(prefix);
    corpus.check_tokens(300);
  };
  base::write_json(scratch / "manifest.json", to_json(sound_manifest()));
  checkpoint::SafetensorsWriter writer(scratch / "x.safetensors",
                                       {{.name = "a", .shape = {2, 3}}, {.name = "b", .shape = {4}}},
                                       {{"format", "pt"}});
  writer.write(std::string(40, '\0').data(), 40);
  writer.finish();
  const auto manifest = [](const fs::path& path) { checkpoint::read_manifest(path.parent_path()); };
  const auto tensors = [](const fs::path& path) { checkpoint::SafetensorsFile(path).checksum(); };
  const std::vector<std::pair<fs::path, std::function<void(const fs::path&)>>> files = {
      {corpus::with_suffix(prefix, ".idx"), open_corpus},
      {corpus::with_suffix(prefix, ".bin"), open_corpus},
      {scratch / "corpus" / "tokenizer.model", read_tokenizer},
      {scratch / "manifest.json", manifest},
      {scratch / "x.safetensors", tensors}};
  std::vector<Input> inputs;
  for (const auto& [path, read] : files) {
    inputs.push_back({path.filename().string(), damaged_file(path, read)});
  }
  const Json sound = to_json(sound_manifest());
  inputs.push_back({"manifest's values",
                    [=](Rng& rng) { checkpoint::manifest_from_json(damaged_json(sound, rng), "case"); }});
  return inputs;
}

}  // namespace

std::vector<Input> file_inputs(const fs::path& scratch) {
  std::vector<Input> inputs = texts();
  for (auto& more : {run_directories(scratch), stored(scratch)}) {
    inputs.insert(inputs.end(), more.begin(), more.end());
  }
  return inputs;
}

}  // namespace sluice::fuzz
