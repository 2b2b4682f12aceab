#ifdef SLUICE_CUDNN

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <bit>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/text.h"
#include "ops/libraries/cudnn_graph.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend looks cuDNN's functions up here
}  // namespace cudnn_frontend

namespace sluice::ops::cudnn {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Names of a graph's tensors.
enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kQOffsets,
  kKvOffsets,
  kOutOffsets,
  kLseOffsets,
  kDQOffsets,
  kDKvOffsets,
  kLengths,
  kKeyLengths,
  kPageTable,
};

// libtorch loads cuDNN with its own kernels; before that it lies among the wheels beside libtorch.
void* open_library() {
  constexpr const char* kName = "libcudnn.so.9";
  if (void* library = ::dlopen(kName, RTLD_NOW | RTLD_GLOBAL)) return library;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) == 0) return nullptr;
  const auto wheels = std::filesystem::path(info.dli_fname).parent_path().parent_path().parent_path();
  return ::dlopen((wheels / "nvidia" / "cudnn" / "lib" / kName).c_str(), RTLD_NOW | RTLD_GLOBAL);
}

// The tensors of a graph, in cuDNN's description of packed rows: [sequence, head, row, dimension] with a
// table of the sequences' begins.
class Builder {
 public:
  Builder(fe::graph::Graph& graph, const GraphShape& shape) : graph_(graph), shape_(shape) {
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    lengths_ = table("lengths", kLengths, shape.sequences, fe::DataType_t::INT32);
    key_lengths_ = table("key lengths", kKeyLengths, shape.sequences, fe::DataType_t::INT32);
    q_ = input("q", kQ, queries(shape.q_stride), offsets("q offsets", kQOffsets));
    if (shape.page_rows > 0) {
      k_ = cache("k", kK, shape.dimensions);
      v_ = cache("v", kV, shape.value_dimensions);
    } else {
      const Tensor of_keys = offsets("key offsets", kKvOffsets);
      k_ = input("k", kK, keys(shape.kv_stride), of_keys);
      v_ = input("v", kV, values(shape.kv_stride), of_keys);
    }
    out_offsets_ = offsets("out offsets", kOutOffsets);
    lse_offsets_ = offsets("lse offsets", kLseOffsets);
  }

  void forward() {
    auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    set_common(options);
    if (shape_.page_rows > 0) {
      const int64_t width = (shape_.longest_keys + shape_.page_rows - 1) / shape_.page_rows;
      const Tensor table = graph_.tensor(fe::graph::Tensor_attributes()
                                             .set_name("page table")
                                             .set_uid(kPageTable)
                                             .set_dim({shape_.sequences, 1, width, 1})
                                             .set_stride({width, width, 1, 1})
                                             .set_data_type(fe::DataType_t::INT32));
      options.set_paged_attention_k_table(table)
          .set_paged_attention_v_table(table)
          .set_paged_attention_max_seq_len_kv(static_cast<int>(shape_.longest_keys));
    }
    auto [out, lse] = graph_.sdpa(q_, k_, v_, options);
    mark_output(out, kOut, results(dense(shape_.heads)), out_offsets_);
    lse->set_output(true).set_uid(kLse).set_data_type(fe::DataType_t::FLOAT);
    lay_out_lse(*lse);
  }

  void backward() {
    const int64_t row = dense(shape_.heads), key_row = dense(shape_.kv_heads);
    const Tensor of_query_gradients = offsets("query gradient offsets", kDQOffsets);
    const Tensor of_key_gradients = offsets("key gradient offsets", kDKvOffsets);
    const Tensor out = input("out", kOut, results(row), out_offsets_),
                 dout = input("dout", kDOut, results(row), out_offsets_);
    const Tensor lse = graph_.tensor(
        fe::graph::Tensor_attributes().set_name("lse").set_uid(kLse).set_data_type(fe::DataType_t::FLOAT));
    lay_out_lse(*lse);
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention's backward")
                       .set_max_total_seq_len_q(shape_.rows)
                       .set_max_total_seq_len_kv(shape_.key_rows)
                       .set_deterministic_algorithm(shape_.deterministic);
    set_common(options);
    auto [dq, dk, dv] = graph_.sdpa_backward(q_, k_, v_, out, dout, lse, options);
    mark_output(dq, kDQ, queries(row), of_query_gradients);
    mark_output(dk, kDK, keys(key_row), of_key_gradients);
    mark_output(dv, kDV, values(key_row), of_key_gradients);
  }

 private:
  // The layout of queries, keys, values, results, or of their gradients: heads, the longest sequence,
  // elements between rows, a head's dimensions.
  struct Matrix {
    int64_t heads, longest, row, dimensions;
  };
  Matrix queries(int64_t row) const { return {shape_.heads, shape_.longest, row, shape_.dimensions}; }
  Matrix keys(int64_t row) const { return {shape_.kv_heads, shape_.longest_keys, row, shape_.dimensions}; }
  Matrix values(int64_t row) const {
    return {shape_.kv_heads, shape_.longest_keys, row, shape_.value_dimensions};
  }
  Matrix results(int64_t row) const { return {shape_.heads, shape_.longest, row, shape_.value_dimensions}; }
  int64_t dense(int64_t heads) const { return heads * shape_.dimensions; }
  void lay_out(fe::graph::Tensor_attributes& tensor, const Matrix& matrix) const {
    tensor.set_dim({shape_.sequences, matrix.heads, matrix.longest, matrix.dimensions})
        .set_stride({matrix.longest * matrix.row, shape_.dimensions, matrix.row, 1});
  }

  // Scale, lengths and mask. A band lets row i see columns in (i - left, i + right]. In pages a sequence's
  // queries are the last rows of its keys.
  template <typename Attributes>
  void set_common(Attributes& options) const {
    options.set_attn_scale(shape_.scale)
        .set_padding_mask(true)
        .set_seq_len_q(lengths_)
        .set_seq_len_kv(key_lengths_);
    const auto [causal, window] = shape_.mask;
    if (causal || window > 0) {
      options
          .set_diagonal_alignment(shape_.page_rows > 0 ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                       : fe::DiagonalAlignment_t::TOP_LEFT)
          .set_diagonal_band_right_bound(causal ? 0 : static_cast<int>(window) - 1);
    }
    if (window > 0) options.set_diagonal_band_left_bound(static_cast<int>(window));
  }

  Tensor table(const char* name, Uid uid, int64_t size, fe::DataType_t type) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim({size, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type));
  }
  Tensor offsets(const char* name, Uid uid) {
    return table(name, uid, shape_.sequences + 1, fe::DataType_t::INT64);
  }
  Tensor input(const char* name, Uid uid, const Matrix& matrix, const Tensor& of_sequences) {
    auto attributes =
        fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_ragged_offset(of_sequences);
    lay_out(attributes, matrix);
    return graph_.tensor(attributes);
  }
  // Pages of keys or values, [page, head, row, dimension].
  Tensor cache(const char* name, Uid uid, int64_t dimensions) {
    return graph_.tensor(
        fe::graph::Tensor_attributes()
            .set_name(name)
            .set_uid(uid)
            .set_dim({shape_.pages, shape_.kv_heads, shape_.page_rows, dimensions})
            .set_stride({shape_.page_rows * shape_.kv_stride, shape_.dimensions, shape_.kv_stride, 1}));
  }
  void mark_output(const Tensor& tensor, Uid uid, const Matrix& matrix, const Tensor& of_sequences) {
    tensor->set_output(true).set_uid(uid).set_ragged_offset(of_sequences);
    lay_out(*tensor, matrix);
  }
  void lay_out_lse(fe::graph::Tensor_attributes& lse) {
    lse.set_dim({shape_.sequences, shape_.heads, shape_.longest, 1})
        .set_stride({shape_.longest * shape_.heads, 1, shape_.heads, 1})
        .set_ragged_offset(lse_offsets_);
  }

  fe::graph::Graph& graph_;
  const GraphShape& shape_;
  Tensor lengths_, key_lengths_, q_, k_, v_, out_offsets_, lse_offsets_;
};

void describe(fe::graph::Graph& graph, const GraphShape& shape) {
  Builder builder(graph, shape);
  shape.direction == Direction::kForward ? builder.forward() : builder.backward();
}

// The message of an error or exception of the frontend; empty if there is none.
template <typename Call>
std::string fault_of(Call call) {
  try {
    fe::error_t error = call();
    if (error.is_good()) return {};
    return error.get_message().empty() ? "an error without words" : error.get_message();
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The thread's handles by GPU. They live until end_thread(), or as long as the process: cuDNN is unreliable
// after main().
std::map<int, cudnnHandle_t>& own_handles() {
  thread_local std::map<int, cudnnHandle_t> handles;
  return handles;
}

cudnnHandle_t handle_of_current_gpu() {
  std::map<int, cudnnHandle_t>& handles = own_handles();
  int gpu = 0;
  cudaGetDevice(&gpu);
  const auto [found, is_new] = handles.try_emplace(gpu, nullptr);
  if (is_new && fe::detail::create_handle(&found->second) != CUDNN_STATUS_SUCCESS) found->second = nullptr;
  return found->second;
}

}  // namespace

const std::string& load_fault() {
  static const std::string fault = [] {
    fe::cudnn_dlhandle = open_library();
    if (fe::cudnn_dlhandle != nullptr) return std::string();
    const char* words = ::dlerror();
    return std::string("cuDNN cannot be loaded: ") + (words == nullptr ? "no reason given" : words);
  }();
  return fault;
}

int64_t library_version() { return static_cast<int64_t>(fe::detail::get_backend_version()); }

void end_thread() {
  for (const auto& [gpu, handle] : own_handles()) {
    if (handle != nullptr) fe::detail::destroy_handle(handle);
  }
  own_handles().clear();
}

std::string to_text(const GraphShape& shape) {
  return base::text(shape.direction == Direction::kForward ? "forward" : "backward", " sequences ",
                    shape.sequences, " longest ", shape.longest, " ", shape.longest_keys, " rows ",
                    shape.rows, " ", shape.key_rows, " heads ", shape.heads, " ", shape.kv_heads,
                    " dimensions ", shape.dimensions, " ", shape.value_dimensions, " pages ", shape.pages,
                    " ", shape.page_rows, " strides ", shape.q_stride, " ", shape.kv_stride, " scale ",
                    std::bit_cast<uint32_t>(shape.scale), " causal ", shape.mask.causal, " window ",
                    shape.mask.window, " deterministic ", shape.deterministic);
}

namespace {

// Finds cuDNN's engines that can run the described graph, the fastest first. `handle` is null if the graph
// has its device's properties.
fe::error_t find_engines(fe::graph::Graph& graph, const GraphShape& shape, cudnnHandle_t handle) {
  describe(graph, shape);
  const std::vector<std::function<fe::error_t()>> steps{
      [&] { return graph.validate(); }, [&] { return graph.build_operation_graph(handle); },
      [&] { return graph.create_execution_plans({fe::HeurMode_t::A}); },
      [&] { return graph.check_support(); }};
  for (const auto& step : steps) {
    if (fe::error_t error = step(); !error.is_good()) return error;
  }
  return {};
}

}  // namespace

std::string support_fault(const GraphShape& shape, int architecture, const std::string& device) {
  return fault_of([&]() -> fe::error_t {
    const auto properties = std::make_shared<fe::DeviceProperties>();
    if (fe::error_t error = properties->deserialize({device.begin(), device.end()}); !error.is_good()) {
      return error;
    }
    fe::graph::Graph graph;
    graph.set_device_properties(properties).set_sm_version(architecture);
    return find_engines(graph, shape, nullptr);
  });
}

struct Plan::Graph {
  std::mutex mutex;  // of running
  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;
};

Plan::Plan(std::unique_ptr<Graph> graph) : graph_(std::move(graph)) {}
Plan::~Plan() = default;

std::unique_ptr<Plan> Plan::make(const GraphShape& shape, std::string& fault) {
  auto made = std::make_unique<Graph>();
  fault = fault_of([&]() -> fe::error_t {
    cudnnHandle_t handle = handle_of_current_gpu();
    if (handle == nullptr) return {fe::error_code_t::HANDLE_ERROR, "cuDNN makes no handle for this GPU"};
    if (fe::error_t error = find_engines(made->graph, shape, handle); !error.is_good()) return error;
    if (fe::error_t error = made->graph.build_plans(); !error.is_good()) return error;
    return made->graph.get_workspace_size(made->workspace_bytes);
  });
  if (!fault.empty()) return nullptr;
  return std::unique_ptr<Plan>(new Plan(std::move(made)));
}

std::unique_ptr<Plan> Plan::load(std::string_view bytes) {
  auto loaded = std::make_unique<Graph>();
  const std::string fault = fault_of([&]() -> fe::error_t {
    cudnnHandle_t handle = handle_of_current_gpu();
    if (handle == nullptr) return {fe::error_code_t::HANDLE_ERROR, "cuDNN makes no handle for this GPU"};
    const std::vector<uint8_t> data(bytes.begin(), bytes.end());
    if (fe::error_t error = loaded->graph.deserialize(handle, data); !error.is_good()) return error;
    return loaded->graph.get_workspace_size(loaded->workspace_bytes);
  });
  return fault.empty() ? std::unique_ptr<Plan>(new Plan(std::move(loaded))) : nullptr;
}

std::string Plan::to_bytes() const {
  std::vector<uint8_t> data;
  const std::string fault =
      fault_of([&] { return graph_->graph.serialize(data, /*serialize_structure=*/false); });
  return fault.empty() ? std::string(data.begin(), data.end()) : "";
}

int64_t Plan::workspace_bytes() const { return graph_->workspace_bytes; }

std::string Plan::run(const Operands& operands, void* workspace, cudaStream_t stream) {
  std::unordered_map<int64_t, void*> pointers;
  const auto add = [&](Uid uid, const void* pointer) {
    if (pointer != nullptr) pointers.emplace(uid, const_cast<void*>(pointer));
  };
  add(kQ, operands.q);
  add(kK, operands.k);
  add(kV, operands.v);
  add(kOut, operands.out);
  add(kLse, operands.lse);
  add(kDOut, operands.dout);
  add(kDQ, operands.dq);
  add(kDK, operands.dk);
  add(kDV, operands.dv);
  add(kQOffsets, operands.q_offsets);
  add(kKvOffsets, operands.kv_offsets);
  add(kPageTable, operands.page_table);
  add(kOutOffsets, operands.out_offsets);
  add(kLseOffsets, operands.lse_offsets);
  add(kDQOffsets, operands.dq_offsets);
  add(kDKvOffsets, operands.dkv_offsets);
  add(kLengths, operands.lengths);
  add(kKeyLengths, operands.key_lengths);
  const std::lock_guard lock(graph_->mutex);
  return fault_of([&]() -> fe::error_t {
    cudnnHandle_t handle = handle_of_current_gpu();
    if (fe::detail::set_stream(handle, stream) != CUDNN_STATUS_SUCCESS) {
      return {fe::error_code_t::HANDLE_ERROR, "cuDNN does not take the stream"};
    }
    return graph_->graph.execute(handle, pointers, workspace);
  });
}

}  // namespace sluice::ops::cudnn

#endif
