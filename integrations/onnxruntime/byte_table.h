// Tables with a result for each byte.
#ifndef INTACT_INTEGRATIONS_ONNXRUNTIME_BYTE_TABLE_H_
#define INTACT_INTEGRATIONS_ONNXRUNTIME_BYTE_TABLE_H_

#include <array>
#include <cstdint>

#include "run.h"

namespace intact::onnxruntime {

using ByteTable = std::array<uint8_t, 256>;

/// y[i] = table[x[i]] for `count` bytes.
using LookUpFunction = void (*)(const ByteTable& table, const uint8_t* x, uint8_t* y, int64_t count);

/// The fastest function that the CPU and the caps permit.
LookUpFunction ChooseLookUp(const Settings& settings);

}  // namespace intact::onnxruntime
#endif  // INTACT_INTEGRATIONS_ONNXRUNTIME_BYTE_TABLE_H_
