// The backend that ggml loads from GGML_BACKEND_PATH.
//
//   registered device, "INTACT"   an accelerator. Its buffer type is that of packed weights, so a program that places weights in
//                                 the buffers of accelerators packs them here
//   device of its backends        has the CPU's buffer type, so the scheduler places inputs and outputs of products in the CPU's
//                                 memory, and copies nothing
//
// A tensor's plan holds its packed weights. A tensor that cannot be packed, of a LoRA adapter or of a damaged file, keeps its bytes
// in the buffer, and the scheduler copies them to the CPU's backend.
#include <intact/grouped.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "formats.h"
#include "interface.h"
#include "products.h"

namespace intact::ggml {
namespace {

constexpr const char* kName = "INTACT";
constexpr size_t kAlignment = 64;

// ----- Weights

struct DestroyPlan {
  void operator()(intact_grouped* plan) const { intact_grouped_destroy(plan); }
};
using Plan = std::unique_ptr<intact_grouped, DestroyPlan>;

// The weights of a tensor, which points to them as `extra`.
struct Weights {
  Plan plan;               // null until all bytes are set
  size_t count = 0;        // bytes that were set, from the first one on
  bool is_packed = false;  // `plan` may exist; else the bytes stay in the buffer
};

struct Buffer {
  void* base = nullptr;
  size_t size = 0;
  std::vector<std::unique_ptr<Weights>> weights;
  ~Buffer() {
    if (base != nullptr) munmap(base, size);
  }
};

const char* BufferTypeName(ggml_backend_buffer_type_t /*type*/) { return kName; }
size_t Alignment(ggml_backend_buffer_type_t /*type*/) { return kAlignment; }
bool IsHost(ggml_backend_buffer_type_t /*type*/) { return false; }
ggml_backend_buffer_t Allocate(ggml_backend_buffer_type_t type, size_t size);

ggml_backend_buffer_type packed_weights = {BufferTypeName, Allocate, nullptr, Alignment, nullptr,
                                           nullptr,        nullptr,  IsHost,  nullptr,   nullptr};

Weights* WeightsOf(const ggml_tensor* tensor) { return static_cast<Weights*>(tensor->extra); }

// The tensor of a view.
template <class Tensor>
Tensor* RootOf(Tensor* tensor) {
  return tensor->view_src == nullptr ? tensor : tensor->view_src;
}

// Gives back the memory of the pages that lie within these bytes. They then have the value 0.
void DropPages(std::byte* bytes, size_t size) {
  constexpr size_t kPage = 4096;
  const size_t before = (kPage - reinterpret_cast<uintptr_t>(bytes) % kPage) % kPage;
  if (size >= before + kPage) madvise(bytes + before, (size - before) / kPage * kPage, MADV_DONTNEED);
}

bool CanBePacked(const ggml_tensor* tensor) {
  return FormatOf(tensor->type) != nullptr && ggml_is_contiguous(tensor);
}

ggml_status AddTensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor) try {
  if (tensor->view_src != nullptr) return GGML_STATUS_SUCCESS;
  auto& weights = static_cast<Buffer*>(buffer->context)->weights;
  weights.push_back(std::make_unique<Weights>());
  weights.back()->is_packed = CanBePacked(tensor);
  tensor->extra = weights.back().get();
  return GGML_STATUS_SUCCESS;
} catch (const std::bad_alloc&) {
  return GGML_STATUS_ALLOC_FAILED;
}

// Packs `blocks`, or says why it cannot.
void Pack(const ggml_tensor* tensor, const void* blocks) {
  Weights* const weights = WeightsOf(tensor);
  const int64_t matrices = tensor->ne[2] * tensor->ne[3];
  intact_grouped* plan = nullptr;
  const intact_status status =
      MakePlan(*FormatOf(tensor->type), matrices, tensor->ne[1], tensor->ne[0], blocks, &plan);
  weights->plan.reset(plan);
  weights->is_packed = plan != nullptr;
  if (!weights->is_packed)
    std::fprintf(stderr, "intact: %s: %s; ggml's CPU backend computes with it\n", tensor->name,
                 status == INTACT_OUT_OF_MEMORY ? "no memory to pack it" : intact_last_error());
}

std::byte* BytesOf(const ggml_tensor* tensor, size_t offset) {
  return static_cast<std::byte*>(tensor->data) + offset;
}

void SetTensor(ggml_backend_buffer_t /*buffer*/, ggml_tensor* tensor, const void* data, size_t offset,
               size_t size) {
  offset += tensor->view_offs;
  tensor = RootOf(tensor);
  Weights* const weights = WeightsOf(tensor);
  const size_t bytes = ggml_nbytes(tensor);
  if (weights->is_packed && offset == 0 && size == bytes) {
    Pack(tensor, data);
    if (weights->is_packed) return;
  }
  std::memcpy(BytesOf(tensor, offset), data, size);
  if (!weights->is_packed) return;
  // Parts must follow each other from the first byte on: a tensor with other parts has no plan.
  weights->plan.reset();
  weights->count = offset == 0 ? size : offset == weights->count ? offset + size : 0;
  if (weights->count < bytes) return;
  Pack(tensor, tensor->data);
  if (weights->is_packed) DropPages(BytesOf(tensor, 0), bytes);
}

void GetTensor(ggml_backend_buffer_t /*buffer*/, const ggml_tensor* tensor, void* data, size_t offset,
               size_t size) {
  if (WeightsOf(RootOf(tensor))->is_packed)
    GGML_ABORT("intact: %s: packed weights cannot be read", tensor->name);
  std::memcpy(data, BytesOf(tensor, offset), size);
}

void FillTensor(ggml_backend_buffer_t /*buffer*/, ggml_tensor* tensor, uint8_t value, size_t offset,
                size_t size) {
  if (WeightsOf(RootOf(tensor))->is_packed)
    GGML_ABORT("intact: %s: packed weights cannot be filled", tensor->name);
  std::memset(BytesOf(tensor, offset), value, size);
}

// Packed weights are then not set.
void Clear(ggml_backend_buffer_t buffer, uint8_t value) {
  auto* const own = static_cast<Buffer*>(buffer->context);
  for (const auto& weights : own->weights) {
    weights->plan.reset();
    weights->count = 0;
  }
  madvise(own->base, own->size, MADV_DONTNEED);  // all bytes are 0
  if (value != 0) std::memset(own->base, value, own->size);
}

void* BaseOf(ggml_backend_buffer_t buffer) { return static_cast<Buffer*>(buffer->context)->base; }
void Free(ggml_backend_buffer_t buffer) { delete static_cast<Buffer*>(buffer->context); }

ggml_backend_buffer_t Allocate(ggml_backend_buffer_type_t type, size_t size) {
  auto buffer = std::unique_ptr<Buffer>(new (std::nothrow) Buffer);
  void* const base =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!buffer || base == MAP_FAILED) return nullptr;
  buffer->base = base;
  buffer->size = size;
  const ggml_backend_buffer_i functions = {Free,    BaseOf,  AddTensor, FillTensor, SetTensor, GetTensor,
                                           nullptr, nullptr, nullptr,   Clear,      nullptr};
  return ggml_backend_buffer_init(type, functions, buffer.release(), size);
}

// ----- Operations

bool IsView(const ggml_tensor* op) {
  return op->op == GGML_OP_NONE || op->op == GGML_OP_RESHAPE || op->op == GGML_OP_VIEW ||
         op->op == GGML_OP_PERMUTE || op->op == GGML_OP_TRANSPOSE;
}

bool SupportsOp(ggml_backend_dev_t /*device*/, const ggml_tensor* op) {
  if (IsView(op)) return true;
  if (op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) return false;
  const ggml_tensor* const weights = op->src[0];
  // Before llama.cpp chooses a buffer, it asks with a tensor of an empty one.
  return weights->buffer != nullptr && weights->buffer->buft == &packed_weights &&
         weights->view_src == nullptr &&
         (weights->extra == nullptr ? CanBePacked(weights) : WeightsOf(weights)->is_packed) && HasRows(op);
}

bool SupportsBufferType(ggml_backend_dev_t /*device*/, ggml_backend_buffer_type_t type) {
  return type == &packed_weights || ggml_backend_buft_is_host(type);
}

struct Backend {
  int threads = 1;
  RowMemory memory;
};

ggml_status Compute(ggml_backend_t backend, ggml_cgraph* graph) {
  auto* const own = static_cast<Backend*>(backend->context);
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_tensor* const node = ggml_graph_node(graph, i);
    if (IsView(node) || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) continue;
    const ggml_tensor* const weights = node->src[0];
    if (!SupportsOp(nullptr, node) || !WeightsOf(weights)->plan) {
      std::fprintf(stderr, "intact: %s: the weights %s are not set\n", node->name, weights->name);
      return GGML_STATUS_FAILED;
    }
    const intact_grouped* const plan = WeightsOf(weights)->plan.get();
    const intact_status status = node->op == GGML_OP_MUL_MAT
                                     ? Multiply(plan, node, own->threads, &own->memory)
                                     : MultiplyById(plan, node, own->threads, &own->memory);
    if (status == INTACT_OK) continue;
    const bool names_no_expert = status == INTACT_INVALID_ARGUMENT && node->op == GGML_OP_MUL_MAT_ID;
    std::fprintf(stderr, "intact: %s: %s\n", node->name,
                 status == INTACT_OUT_OF_MEMORY ? "no memory"
                 : names_no_expert              ? "names an expert that does not exist"
                                                : intact_last_error());
    return status == INTACT_OUT_OF_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
  }
  return GGML_STATUS_SUCCESS;
}

// ----- Devices

const char* DeviceName(ggml_backend_dev_t /*device*/) { return kName; }
const char* Description(ggml_backend_dev_t /*device*/) { return "intact: packed weights of 4 to 8 bits"; }
enum ggml_backend_dev_type DeviceType(ggml_backend_dev_t /*device*/) {
  return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}
// The memory is the CPU's, which the CPU's device reports.
void Memory(ggml_backend_dev_t /*device*/, size_t* free, size_t* total) { *free = *total = 0; }

void Properties(ggml_backend_dev_t device, ggml_backend_dev_props* properties) {
  *properties = {};
  properties->name = DeviceName(device);
  properties->description = Description(device);
  properties->type = DeviceType(device);
  Memory(device, &properties->memory_free, &properties->memory_total);
}

ggml_backend_buffer_type_t PackedType(ggml_backend_dev_t /*device*/) { return &packed_weights; }
ggml_backend_buffer_type_t CpuType(ggml_backend_dev_t /*device*/) { return ggml_backend_cpu_buffer_type(); }
ggml_backend_t NewBackend(ggml_backend_dev_t device, const char* parameters);

constexpr ggml_backend_device DeviceWith(ggml_backend_buffer_type_t (*type)(ggml_backend_dev_t)) {
  return {DeviceName, Description,        Memory,  DeviceType, Properties, NewBackend, type, nullptr, nullptr,
          SupportsOp, SupportsBufferType, nullptr, {},         nullptr,    nullptr};
}
ggml_backend_device device_of_weights = DeviceWith(PackedType), device_of_backends = DeviceWith(CpuType);

const char* BackendName(ggml_backend_t /*backend*/) { return kName; }
void FreeBackend(ggml_backend_t backend) {
  delete static_cast<Backend*>(backend->context);
  delete backend;
}

ggml_backend_t NewBackend(ggml_backend_dev_t /*device*/, const char* /*parameters*/) {
  static ggml_guid guid = {0x69, 0x6e, 0x74, 0x61, 0x63, 0x74, 0x20, 0x67,
                           0x72, 0x6f, 0x75, 0x70, 0x65, 0x64, 0x00, 0x01};
  auto own = std::unique_ptr<Backend>(new (std::nothrow) Backend);
  auto* const backend = new (std::nothrow) ggml_backend{};
  if (!own || backend == nullptr) return nullptr;
  backend->guid = &guid;
  backend->get_name = BackendName;
  backend->free = FreeBackend;
  backend->graph_compute = Compute;
  backend->device = &device_of_backends;
  backend->context = own.release();
  return backend;
}

void SetThreads(ggml_backend_t backend, int threads) {
  static_cast<Backend*>(backend->context)->threads = threads > 1 ? threads : 1;
}

// ----- Registry

const char* RegistryName(ggml_backend_reg_t /*registry*/) { return kName; }
size_t DeviceCount(ggml_backend_reg_t /*registry*/) { return 1; }
ggml_backend_dev_t DeviceAt(ggml_backend_reg_t /*registry*/, size_t /*index*/) { return &device_of_weights; }
void* FunctionOf(ggml_backend_reg_t /*registry*/, const char* name) {
  const bool sets_threads = std::strcmp(name, "ggml_backend_set_n_threads") == 0;
  return sets_threads ? reinterpret_cast<void*>(SetThreads) : nullptr;
}

ggml_backend_reg registry = {kInterfaceVersion, RegistryName, DeviceCount, DeviceAt, FunctionOf, nullptr};

// "0.27" of "0.27.1". Tensors and numbers of operations differ between these versions.
std::string Minor(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace
}  // namespace intact::ggml

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
  using namespace intact::ggml;
  if (Minor(ggml_version()) != Minor(INTACT_GGML_VERSION)) {
    std::fprintf(stderr,
                 "intact: this is ggml %s; expected ggml %s.x (interface of backends %d), whose headers the "
                 "backend was built with\n",
                 ggml_version(), Minor(INTACT_GGML_VERSION).c_str(), kInterfaceVersion);
    return nullptr;
  }
  packed_weights.device = &device_of_weights;
  device_of_weights.reg = device_of_backends.reg = &registry;
  return &registry;
}
