// Exceptions as statuses of ONNX Runtime's C interface.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_STATUS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_STATUS_H_

#include <exception>
#include <stdexcept>
#include <string>

#include "ort.h"

namespace intact::onnxruntime {

/// Calls body() for a function of ONNX Runtime's C interface: what it throws becomes a status. It is never
/// ORT_EP_FAIL, behind which onnxruntime.InferenceSession would go on with other providers.
template <class Body>
OrtStatus* Guard(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Ort::Exception& error) {
    return Ort::GetApi().CreateStatus(error.GetOrtErrorCode(), error.what());
  } catch (const std::invalid_argument& error) {
    return Ort::GetApi().CreateStatus(ORT_INVALID_ARGUMENT, (std::string("intact: ") + error.what()).c_str());
  } catch (const std::exception& error) {
    return Ort::GetApi().CreateStatus(ORT_RUNTIME_EXCEPTION,
                                      (std::string("intact: ") + error.what()).c_str());
  }
}

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_STATUS_H_
