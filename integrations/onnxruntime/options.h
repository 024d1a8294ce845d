// The options of a session.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_OPTIONS_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_OPTIONS_H_

#include <string>

#include "ort.h"
#include "run.h"

namespace intact::onnxruntime {

inline constexpr char kProviderName[] = "IntactExecutionProvider";

/// What a session asks of the provider.
struct Options {
  Settings settings;
  std::string report_id;  ///< the option `report`; "": no report
};

/// Reads a session's options. `is_nhwc`: Settings::is_nhwc. Throws std::invalid_argument if an option has an unknown value.
Options OptionsOf(Ort::ConstSessionOptions session, bool is_nhwc);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_OPTIONS_H_
