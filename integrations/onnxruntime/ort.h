// ONNX Runtime's headers, for a library that the runtime loads: the API comes from the runtime, not from a
// link.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_ORT_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_ORT_H_

#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>
#undef ORT_API_MANUAL_INIT

#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_ORT_H_
