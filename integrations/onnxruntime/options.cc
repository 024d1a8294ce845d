#include "options.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <utility>

namespace intact::onnxruntime {
namespace {

constexpr char kLikeAvx2[] = "onnxruntime:avx2";  // the value of the option `like`

int32_t AvailableThreads() {
  cpu_set_t processors;
  return sched_getaffinity(0, sizeof processors, &processors) == 0 ? CPU_COUNT(&processors) : 1;
}

[[noreturn]] void RefuseOption(const std::string& option, const std::string& value,
                               const std::string& expected) {
  throw std::invalid_argument(option + ": is '" + value + "'; expected " + expected);
}

Settings ReadSettings(const std::map<std::string, std::string>& options) {
  Settings settings;
  settings.threads = AvailableThreads();
  for (const auto& [option, value] : options) {
    if (value.empty()) continue;
    if (option == "mode") {
      if (value != "exact" && value != "saturating") RefuseOption(option, value, "exact or saturating");
      settings.mode = value == "exact" ? INTACT_EXACT : INTACT_SATURATING;
    } else if (option == "max_isa") {
      int32_t isa = INTACT_ISA_ANY;
      const char* name = intact_isa_name(isa);
      while (name != nullptr && value != name) name = intact_isa_name(++isa);
      if (name == nullptr) RefuseOption(option, value, "a name of intact_isa_name(), such as avx2");
      settings.max_isa = isa;
    } else if (option == "reproducible") {
      if (value != "0" && value != "1") RefuseOption(option, value, "0 or 1");
      settings.is_reproducible = value == "1";
    } else if (option == "quantize_activations") {
      if (value != "0" && value != "1") RefuseOption(option, value, "0 or 1");
      settings.quantizes_activations = value == "1";
    } else if (option == "like") {
      if (value != kLikeAvx2) RefuseOption(option, value, kLikeAvx2);
      settings.is_like_avx2 = true;
    } else if (option == "threads") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), settings.threads);
      if (error != std::errc() || *end != '\0' || settings.threads < 1)
        RefuseOption(option, value, "a positive number");
    }
  }
  if (settings.is_reproducible && settings.mode != INTACT_EXACT)
    throw std::invalid_argument("mode: is 'saturating' with reproducible; expected exact");
  if (settings.is_like_avx2) {
    if (settings.mode != INTACT_EXACT)
      throw std::invalid_argument(
          "mode: is 'saturating' with like; expected exact, for like says what clamps");
    if (!HasAvx2(settings))
      throw std::invalid_argument(
          "like: is '" + std::string(kLikeAvx2) +
          "' without AVX2; expected a CPU and caps (max_isa, INTACT_MAX_ISA) that have it");
  }
  settings.part_products = integrations::PartProducts(settings.max_isa);
  return settings;
}

}  // namespace

Options OptionsOf(Ort::ConstSessionOptions session, bool is_nhwc) {
  std::string prefix = std::string("ep.") + kProviderName + ".";
  std::ranges::transform(prefix, prefix.begin(), [](unsigned char c) { return std::tolower(c); });
  std::map<std::string, std::string> given;
  for (const char* const option :
       {"like", "max_isa", "mode", "quantize_activations", "report", "reproducible", "threads"})
    given[option] = session.GetConfigEntryOrDefault((prefix + option).c_str(), "");
  Settings settings = ReadSettings(given);
  settings.is_nhwc = is_nhwc;
  const auto number = [&](const char* entry, int64_t otherwise) {
    return std::strtoll(session.GetConfigEntryOrDefault(entry, std::to_string(otherwise)).c_str(), nullptr,
                        10);
  };
  settings.nbits_level = number("session.qdq_matmulnbits_accuracy_level", settings.nbits_level);
  if (const int64_t block = number("session.qdq_matmulnbits_block_size", 0); block != 0)
    settings.nbits_block = block;
  constexpr std::pair<const char*, const char*> kNeedsZero[] = {
      {"session.disable_prepacking", "products of constants else depend on the number of threads"},
      {"session.disable_quant_qdq", "pools between bytes else depend on the CPU"}};
  for (const auto& [entry, why] : kNeedsZero)
    if (settings.is_reproducible && session.GetConfigEntryOrDefault(entry, "0") == "1")
      throw std::invalid_argument(std::string(entry) + ": is '1' with reproducible; expected '0': " + why);
  return {settings, given["report"]};
}

}  // namespace intact::onnxruntime
