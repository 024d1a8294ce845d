// The interface between ggml and its backends, version 3. ggml keeps this interface in an internal header. Its
// public headers only declare the names of these structs. ggml compares the version when it loads a backend.
#ifndef INTACT_INTEGRATIONS_GGML_INTERFACE_H_
#define INTACT_INTEGRATIONS_GGML_INTERFACE_H_

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): ggml's names

extern "C" {

// A kind of memory. Optional functions may be null.
struct ggml_backend_buffer_type {
  const char* (*get_name)(ggml_backend_buffer_type_t type);
  ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t type, size_t size);
  void* alloc_buffer_n;  // optional
  size_t (*get_alignment)(ggml_backend_buffer_type_t type);
  void* get_max_size;      // optional
  void* get_alloc_size;    // optional: ggml_nbytes()
  void* get_alloc_size_n;  // optional
  // Optional: whether the CPU reads tensors in place, in ggml's layout; no.
  bool (*is_host)(ggml_backend_buffer_type_t type);
  ggml_backend_dev_t device;
  void* context;
};

struct ggml_backend_buffer_i {
  void (*free_buffer)(ggml_backend_buffer_t buffer);
  void* (*get_base)(ggml_backend_buffer_t buffer);
  ggml_status (*init_tensor)(ggml_backend_buffer_t buffer, ggml_tensor* tensor);
  void (*memset_tensor)(ggml_backend_buffer_t buffer, ggml_tensor* tensor, uint8_t value, size_t offset,
                        size_t size);
  void (*set_tensor)(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, size_t offset,
                     size_t size);
  void (*get_tensor)(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data, size_t offset,
                     size_t size);
  void* set_tensor_2d;  // optional
  void* get_tensor_2d;  // optional
  void* cpy_tensor;     // optional
  void (*clear)(ggml_backend_buffer_t buffer, uint8_t value);
  void* reset;  // optional
};

struct ggml_backend_buffer {
  ggml_backend_buffer_i iface;
  ggml_backend_buffer_type_t buft;
  void* context;
  size_t size;
  ggml_backend_buffer_usage usage;
};

ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t type, ggml_backend_buffer_i iface,
                                               void* context, size_t size);

// What computes graphs.
struct ggml_backend {
  ggml_guid_t guid;
  const char* (*get_name)(ggml_backend_t backend);
  void (*free)(ggml_backend_t backend);
  void* asynchronous[5];  // optional: transfers
  void* synchronize;      // optional
  void* plans[4];         // optional
  ggml_status (*graph_compute)(ggml_backend_t backend, ggml_cgraph* graph);
  void* events[2];       // optional
  void* graph_optimize;  // optional
  ggml_backend_dev_t device;
  void* context;
};

struct ggml_backend_device {
  const char* (*get_name)(ggml_backend_dev_t device);
  const char* (*get_description)(ggml_backend_dev_t device);
  void (*get_memory)(ggml_backend_dev_t device, size_t* free, size_t* total);
  enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t device);
  void (*get_props)(ggml_backend_dev_t device, ggml_backend_dev_props* props);
  ggml_backend_t (*init_backend)(ggml_backend_dev_t device, const char* parameters);
  ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t device);
  void* get_host_buffer_type;  // optional
  void* buffer_from_host_ptr;  // optional
  bool (*supports_op)(ggml_backend_dev_t device, const ggml_tensor* op);
  bool (*supports_buft)(ggml_backend_dev_t device, ggml_backend_buffer_type_t type);
  void* offload_op;  // optional
  void* events[3];   // optional
  ggml_backend_reg_t reg;
  void* context;
};

struct ggml_backend_reg {
  int api_version;
  const char* (*get_name)(ggml_backend_reg_t reg);
  size_t (*get_device_count)(ggml_backend_reg_t reg);
  ggml_backend_dev_t (*get_device)(ggml_backend_reg_t reg, size_t index);
  void* (*get_proc_address)(ggml_backend_reg_t reg, const char* name);
  void* context;
};

}  // extern "C"

// NOLINTEND(readability-identifier-naming)

namespace intact::ggml {

constexpr int kInterfaceVersion = 3;

}  // namespace intact::ggml

#endif  // INTACT_INTEGRATIONS_GGML_INTERFACE_H_
