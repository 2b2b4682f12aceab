#include "device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace sluice::stand_in {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

// What a thread has chosen.
thread_local DeviceIndex own_device = 0;
thread_local std::array<int, kMostDevices> own_streams{};
// Inside of an operator that the host runs in the device's place: its copies are no work of the device.
thread_local bool in_operator = false;

Device device_of(DeviceIndex index) { return device(index < 0 ? own_device : index); }
int& stream_of(const Device& of) { return own_streams[static_cast<size_t>(device_of(of.index()).index())]; }
Checker& checker_of(const Device& of) { return checker(device_of(of.index()).index()); }
Stream stream(const Device& of, int id) { return Stream(Stream::UNSAFE, device_of(of.index()), id); }

// Memory.

struct Block {
  void* data;
  int device;
};

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  checker(block->device).freed(block->data);
  std::free(block->data);
  delete block;
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(std::max<size_t>(1, bytes));
    const Device own = device(own_device);
    checker_of(own).made(data, bytes, stream_of(own));
    return {data, new Block{data, own_device}, &free_block, own};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// Blocks of pinned memory, by address.
class PinnedBlocks {
 public:
  struct Found {
    const char* begin;
    size_t bytes;
  };
  void add(const char* begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[begin] = bytes;
  }
  void remove(const char* begin) {
    size_t bytes = 0;
    {
      const std::lock_guard lock(mutex_);
      bytes = std::exchange(blocks_[begin], 0);
      blocks_.erase(begin);
    }
    for (int device = 0; device < kMostDevices; ++device) checker(device).pinned_freed(begin, bytes);
  }
  std::optional<Found> find(const void* address) const {
    const std::lock_guard lock(mutex_);
    auto found = blocks_.upper_bound(static_cast<const char*>(address));
    if (found == blocks_.begin()) return std::nullopt;
    --found;
    if (static_cast<const char*>(address) >= found->first + found->second) return std::nullopt;
    return Found{found->first, found->second};
  }

 private:
  mutable std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
};

PinnedBlocks& pinned_blocks() {
  static auto* const blocks = new PinnedBlocks;
  return *blocks;
}

void free_pinned(void* data) {
  pinned_blocks().remove(static_cast<const char*>(data));
  std::free(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(std::max<size_t>(1, bytes));
    pinned_blocks().add(static_cast<const char*>(data), std::max<size_t>(1, bytes));
    return {data, data, &free_pinned, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* data) const override { return pinned_blocks().find(data).has_value(); }
  DeviceIndex deviceCount() const override { return kMostDevices; }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator allocator;
    return &allocator;
  }
};

// Streams and events.

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  Device exchangeDevice(Device next) const override {
    return device(std::exchange(own_device, device_of(next.index()).index()));
  }
  Device getDevice() const override { return device(own_device); }
  void setDevice(Device next) const override { own_device = device_of(next.index()).index(); }
  void uncheckedSetDevice(Device next) const noexcept override { own_device = next.index(); }
  DeviceIndex deviceCount() const noexcept override { return kMostDevices; }

  Stream getStream(Device of) const override { return stream(of, stream_of(of)); }
  Stream getDefaultStream(Device of) const override { return stream(of, 0); }
  Stream getStreamFromGlobalPool(Device of, bool) const override {
    return stream(of, checker_of(of).new_stream());
  }
  Stream getNewStream(Device of, int) const override { return stream(of, checker_of(of).new_stream()); }
  Stream exchangeStream(Stream next) const override {
    int& current = stream_of(next.device());
    const Stream last = stream(next.device(), current);
    const auto id = static_cast<int>(next.id());
    if (!checker_of(next.device()).leaves_out({Ordering::Kind::kEnterStream, id})) current = id;
    return last;
  }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream& of) const override {
    checker_of(of.device()).synchronize_stream(static_cast<int>(of.id()));
  }
  void synchronizeDevice(const DeviceIndex index) const override {
    for (int stream = 0; stream < kMostStreams; ++stream) checker(index).synchronize_stream(stream);
  }

  void record(void** event, const Stream& of, const DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new EventOf{{}, of.device()};
    checker_of(of.device()).record(static_cast<EventOf*>(*event)->event, static_cast<int>(of.id()));
  }
  void block(void* event, const Stream& of) const override {
    if (event != nullptr)
      checker_of(of.device()).block(static_cast<EventOf*>(event)->event, static_cast<int>(of.id()));
  }
  bool queryEvent(void* event) const override {
    const auto* of = static_cast<EventOf*>(event);
    return of == nullptr || checker_of(of->device).is_done(of->event);
  }
  void synchronizeEvent(void* event) const override {
    const auto* of = static_cast<EventOf*>(event);
    checker_of(of->device).synchronize(of->event);
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<EventOf*>(event);
  }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    return static_cast<double>(static_cast<EventOf*>(to)->event.ns - static_cast<EventOf*>(from)->event.ns) /
           1e6;
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& of) const override {
    checker_of(of.device()).tell_allocator(data.get(), static_cast<int>(of.id()));
  }

 private:
  struct EventOf {
    Checker::Event event;
    Device device;
  };
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Operators.

// The tensors among an operator's arguments or results.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) return visit(value.toTensor());
  if (!value.isList()) return;
  for (const c10::IValue& each : value.toListRef()) {
    if (each.isTensor()) visit(each.toTensor());
  }
}

// A number in host memory may stand beside tensors of a device, a tensor of another device not.
void check_one_device(c10::ArrayRef<c10::IValue> arguments, const Device& on, const std::string& name) {
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.device() == on || (tensor.is_cpu() && tensor.dim() == 0)) return;
      checker_of(on).say(base::text(name, " on ", on.str(), " has an operand on ", tensor.device().str()));
    });
  }
}

std::optional<Device> device_among(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<Device> found;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!found && tensor.defined() && tensor.is_privateuseone()) found = tensor.device();
    });
  }
  return found;
}

// Operators whose results have sizes, or values, that the host must know.
bool host_waits(const std::string& name) {
  return name == "aten::_local_scalar_dense" || name == "aten::nonzero" || name == "aten::masked_select" ||
         name == "aten::_unique2" || name == "aten::bincount" || name == "aten::equal";
}

// GPUs have one kernel for what `ops` names to profilers, RECORD_USER_SCOPE("sluice::…"): operators that
// compute it here count as one launch.
struct Kernel {
  int depth = 0;
  bool counted = false;
};
thread_local Kernel kernel;

bool begins_launch() {
  if (kernel.depth == 0) return true;
  return !std::exchange(kernel.counted, true);
}

std::unique_ptr<at::ObserverContext> enter_kernel(const at::RecordFunction& range) {
  if (std::string_view(range.name()).starts_with("sluice::") && kernel.depth++ == 0) kernel.counted = false;
  return nullptr;
}
void leave_kernel(const at::RecordFunction& range, at::ObserverContext* /*unused*/) {
  if (std::string_view(range.name()).starts_with("sluice::")) --kernel.depth;
}
[[maybe_unused]] const auto kernels_seen = at::addGlobalCallback(
    at::RecordFunctionCallback(enter_kernel, leave_kernel).scopes({at::RecordScope::USER_SCOPE}));

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& name = schema.name();
  const auto arguments = torch::jit::last(*stack, schema.arguments().size());
  const Device on = device_among(arguments).value_or(device(own_device));
  Checker& checker = checker_of(on);
  const int stream = stream_of(on);
  checker.launch(stream, begins_launch());
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const Mode mode = alias != nullptr && alias->isWrite() ? Mode::kWrite : Mode::kRead;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { access(tensor, mode, name); });
  }
  check_one_device(arguments, on, name);
  const DeviceIndex outer_device = std::exchange(own_device, on.index());
  const bool outer = std::exchange(in_operator, true);
  at::native::cpu_fallback(op, stack);
  in_operator = outer;
  own_device = outer_device;
  if (host_waits(name)) checker.host_waits_for(stream, name);
  for (const c10::IValue& result : torch::jit::last(*stack, schema.returns().size()))
    for_each_tensor(result, [&](const at::Tensor& tensor) { access(tensor, Mode::kWrite, name); });
}

Allocator& allocator() {
  static auto* const own = new Allocator;
  return *own;
}

// On the device that is asked for, whichever is the thread's.
template <typename Make>
at::Tensor make_on(std::optional<Device> on, const Make& make) {
  const DeviceIndex outer = std::exchange(own_device, on ? device_of(on->index()).index() : own_device);
  at::Tensor made = make();
  own_device = outer;
  return made;
}

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<Device> on, std::optional<bool>, std::optional<at::MemoryFormat>) {
  return make_on(on, [&]() -> at::Tensor {
    return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator(), kKeys,
                                     type.value_or(at::kFloat), std::nullopt);
  });
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<Device> on, std::optional<bool>) {
  return make_on(on, [&]() -> at::Tensor {
    return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                             &allocator(), kKeys, type.value_or(at::kFloat));
  });
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()));
}

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// Pinned memory's part of a copy, checked as memory of the device is.
void access_pinned(Checker& checker, int stream, const at::Tensor& host, Mode mode) {
  const auto block = pinned_blocks().find(host.const_data_ptr());
  if (!block) return;
  checker.pinned_used(block->begin, block->bytes);
  checker.access(stream, host.const_data_ptr(), bytes_of(host), mode, "copy");
}

// As CUDA's: the host waits unless it is told not to, and always where its memory is not pinned.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (in_operator || from.numel() == 0) {
    if (from.numel() > 0) on_host(to).copy_(on_host(from));
    return to;
  }
  const Device on = from.is_privateuseone() ? from.device() : to.device();
  Checker& checker = checker_of(on);
  const int stream = stream_of(on);
  checker.launch(stream, begins_launch());
  access(from, Mode::kRead, "copy");
  access(to, Mode::kWrite, "copy");
  if (from.is_privateuseone() && to.is_privateuseone()) {
    on_host(to).copy_(on_host(from));
    return to;
  }
  const at::Tensor& host = from.is_cpu() ? from : to;
  const bool pinned = pinned_blocks().find(host.const_data_ptr()).has_value();
  const bool dense = host.is_contiguous() && from.scalar_type() == to.scalar_type();
  access_pinned(checker, stream, host, from.is_cpu() ? Mode::kRead : Mode::kWrite);
  checker.land(host.const_data_ptr(), bytes_of(host));
  const bool waits = !(pinned && non_blocking);
  const bool left_out =
      waits && to.is_cpu() && dense && checker.leaves_out({Ordering::Kind::kCopyToHost, stream});
  if (left_out) {
    std::memset(to.mutable_data_ptr(), 0xff, to.nbytes());
    return to;
  }
  if (to.is_cpu() && dense && !waits) {
    const at::Tensor arriving = on_host(from).contiguous();
    checker.copy_to_host(stream, arriving.const_data_ptr(), to.mutable_data_ptr(), bytes_of(to));
    return to;
  }
  on_host(to).copy_(on_host(from));
  if (from.is_cpu() && !waits && dense) checker.copy_from_host(stream, from.const_data_ptr(), bytes_of(from));
  if (waits) checker.host_waits_for(stream, to.is_cpu() ? "copy to the host" : "copy from the host");
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) {
    const at::Tensor fresh = at::empty(from.sizes(), to.options());
    c10::TensorImpl* own = to.unsafeGetTensorImpl();
    own->set_storage_keep_dtype(fresh.storage());
    own->set_storage_offset(0);
    own->set_sizes_and_strides(fresh.sizes(), fresh.strides());
  }
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor as_strided(const at::Tensor& tensor, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  at::Tensor view = at::detail::make_tensor<at::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_storage_offset(offset.value_or(tensor.storage_offset()));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return view;
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef size) {
  const auto inferred = at::infer_size(C10_AS_INTARRAYREF_SLOW(size), tensor.numel());
  const auto stride = at::detail::computeStride(tensor.sizes(), tensor.strides(), inferred);
  TORCH_CHECK(stride.has_value(), "no view has this size");
  return as_strided(tensor, inferred, *stride, tensor.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return as_strided(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                    tensor.storage_offset());
}

at::Tensor unfold(const at::Tensor& tensor, int64_t dimension, int64_t size, int64_t step) {
  dimension = at::maybe_wrap_dim(dimension, tensor.dim());
  auto sizes = tensor.sizes().vec(), strides = tensor.strides().vec();
  sizes[static_cast<size_t>(dimension)] = (tensor.size(dimension) - size) / step + 1;
  strides[static_cast<size_t>(dimension)] *= step;
  sizes.push_back(size);
  strides.push_back(tensor.stride(dimension));
  return as_strided(tensor, sizes, strides, tensor.storage_offset());
}

void record_stream(at::Tensor& tensor, c10::Stream of) {
  checker_of(tensor.device()).tell_allocator(tensor.storage().data_ptr().get(), static_cast<int>(of.id()));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("unfold", &unfold);
  library.impl("record_stream", &record_stream);
}

[[maybe_unused]] const bool hooks_registered = [] {
  c10::register_privateuse1_backend("stand_in");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

int current_stream(const c10::Device& of) { return stream_of(of); }

// Rows of a narrowed matrix one by one, so that columns side by side don't touch.
void access(const at::Tensor& tensor, Mode mode, const std::string& by) {
  if (!tensor.defined() || !tensor.is_privateuseone() || tensor.numel() == 0) return;
  const auto element = static_cast<int64_t>(tensor.element_size());
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  const auto span_from = [&](int64_t first) {
    int64_t span = 1;
    for (int64_t d = first; d < tensor.dim(); ++d) span += (tensor.size(d) - 1) * tensor.stride(d);
    return span;
  };
  Checker& own = checker_of(tensor.device());
  const int stream = stream_of(tensor.device());
  constexpr int64_t kMostRows = 256;
  const bool apart = tensor.dim() >= 2 && !tensor.is_contiguous() && tensor.size(0) <= kMostRows &&
                     tensor.stride(0) > 0 && span_from(1) <= tensor.stride(0);
  const int64_t rows = apart ? tensor.size(0) : 1;
  const int64_t span = span_from(apart ? 1 : 0);
  for (int64_t row = 0; row < rows; ++row)
    own.access(stream, begin + (apart ? row * tensor.stride(0) * element : 0), span * element, mode, by);
}

}  // namespace sluice::stand_in
