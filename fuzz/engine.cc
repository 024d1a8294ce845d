// Questions to the table of engines (intact/engines.h).
#include <fmt/format.h>
#include <intact/engines.h>

#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "core/types.h"
#include "fuzz/call.h"
#include "fuzz/check.h"
#include "fuzz/input.h"

namespace intact::fuzz {
namespace {

intact_engine_info Describe(int32_t index) {
  intact_engine_info info = INTACT_ENGINE_INFO_INIT;
  (void)intact_engine_describe(index, &info);
  return info;
}

bool IsValid(const intact_engine_layer& layer, bool is_known_engine) {
  const auto is_byte = [](int32_t type) { return type == INTACT_U8 || type == INTACT_S8; };
  return is_known_engine && layer.op != nullptr && is_byte(layer.a_type) && is_byte(layer.b_type) &&
         (layer.is_wide == 0 || layer.is_wide == 1) && layer.depth >= 1 && layer.groups >= 1 &&
         layer.group_inputs >= 1 && layer.group_outputs >= 1 && layer.isa != INTACT_ISA_ANY &&
         intact_isa_name(static_cast<intact_isa>(layer.isa)) != nullptr;
}

// What is wrong with an answer, or "".
std::string WrongAnswer(const intact_engine_layer& layer, const intact_engine_answer& answer) {
  const bool is_conv = std::strstr(layer.op, "Conv") != nullptr;
  switch (answer.pairs) {
    case INTACT_ENGINE_PAIRS_NONE:
      break;
    case INTACT_ENGINE_PAIRS_DEPTHS:
    case INTACT_ENGINE_PAIRS_HALVES:
      if (is_conv) return "a convolution has the pairs of a matrix product";
      break;
    case INTACT_ENGINE_PAIRS_WITHIN_TAP:
      if (layer.group_inputs < 2) return "a tap of one channel has pairs";
      [[fallthrough]];
    case INTACT_ENGINE_PAIRS_FLATTENED:
      if (!is_conv) return "a matrix product has the pairs of a convolution";
      break;
    case INTACT_ENGINE_PAIRS_KERNEL_ROW:
    case INTACT_ENGINE_PAIRS_KERNEL_COLUMN:
      if (!is_conv || layer.group_inputs != 1) return "several channels have the pairs of one";
      break;
    default:
      return fmt::format("pairs {} is unknown", answer.pairs);
  }
  if (answer.pairs != INTACT_ENGINE_PAIRS_NONE && layer.depth < 2) return "one depth has pairs";
  if (answer.is_measured != 1 && (answer.is_measured != 0 || layer.version == nullptr)) {
    return fmt::format("is_measured is {}", answer.is_measured);
  }
  return "";
}

}  // namespace

std::string CheckEngine(std::span<const uint8_t> bytes) {
  Input input(bytes);
  const int32_t engine = static_cast<int32_t>(input.Integer(0, intact_engine_count() - 1));
  intact_engine_layer layer = INTACT_ENGINE_LAYER_INIT;
  const bool is_known = !input.OneIn(16);
  layer.engine = is_known ? Describe(engine).name : input.Pick<const char*>({"", "nobody", nullptr});
  layer.version = input.Pick<const char*>({nullptr, "", "1.32.0", "3.12.0", "x"});
  layer.op = input.Pick<const char*>({"MatMul", "Gemm", "Conv", "QLinearConv", "QLinearMatMul", "QGemm",
                                      "MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM", "Attention", "",
                                      nullptr});
  const int32_t most = std::numeric_limits<int32_t>::max();
  layer.a_type =
      input.Pick({int32_t{INTACT_U8}, int32_t{INTACT_S8}, int32_t{INTACT_U8}, int32_t{INTACT_F32}});
  layer.b_type = input.Pick({int32_t{INTACT_S8}, int32_t{INTACT_U8}, int32_t{INTACT_S8}, most});
  const auto extent = [&input] {
    if (input.OneIn(32)) return input.Pick({int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::max()});
    return input.OneIn(2) ? input.Integer(1, 4) : input.Integer(1, 1000);
  };
  layer.groups = extent();
  layer.group_inputs = extent();
  layer.group_outputs = extent();
  layer.depth = input.OneIn(4) || layer.group_inputs < 1 || layer.group_inputs > 1000
                    ? extent()
                    : layer.group_inputs * input.Integer(1, 50);
  layer.isa = static_cast<int32_t>(input.Integer(-1, 12));
  layer.is_wide = input.OneIn(32) ? most : static_cast<int32_t>(input.Integer(0, 1));
  const Versioned<intact_engine_layer> given(layer, &input);
  intact_engine_answer answer = INTACT_ENGINE_ANSWER_INIT;
  const intact_engine_answer untouched = answer;
  const intact_status status = intact_engine_ask(given.get(), &answer);
  if (status != INTACT_OK) {
    std::string wrong = WrongRefusal("intact_engine_ask", status, true);
    if (wrong.empty() && std::memcmp(&answer, &untouched, sizeof answer) != 0) wrong = "a refusal answers";
    return wrong;
  }
  if (given.is_spoilt() || !IsValid(layer, is_known)) return "a wrong layer is accepted";
  std::string wrong = WrongAnswer(layer, answer);
  intact_engine_answer again = INTACT_ENGINE_ANSWER_INIT;
  (void)intact_engine_ask(&layer, &again);
  if (wrong.empty() && (again.pairs != answer.pairs || again.is_measured != answer.is_measured)) {
    wrong = "a second answer differs";
  }
  return wrong.empty() ? "" : fmt::format("{} {}: {}", layer.engine, layer.op, wrong);
}

}  // namespace intact::fuzz
