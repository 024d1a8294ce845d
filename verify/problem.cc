#include "verify/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "verify/fill.h"

namespace intact::verify {
namespace {

constexpr int64_t kMaxDimension = int64_t{1} << 24;
constexpr int64_t kMaxElements = int64_t{1} << 28;      // of one tensor
constexpr int64_t kMaxMultiplyAdds = int64_t{1} << 40;  // minutes of scalar reference

template <class E>
struct Name {
  std::string_view text;
  E value;
};

constexpr Name<Fill> kFills[] = {
    {"uniform", Fill::kUniform}, {"extremes", Fill::kExtremes}, {"one_hot", Fill::kOneHot},
    {"bait", Fill::kBait},       {"gauss", Fill::kGauss},       {"laplace", Fill::kLaplace},
    {"student", Fill::kStudent}, {"relu", Fill::kRelu},         {"ramp", Fill::kRamp},
    {"ties", Fill::kTies},       {"bound", Fill::kBound},       {"stray", Fill::kStray},
};
constexpr Name<intact_type> kTypes[] = {
    {"u8", INTACT_U8}, {"s8", INTACT_S8}, {"s32", INTACT_S32}, {"f32", INTACT_F32}};
constexpr Name<intact_type> kResiduals[] = {
    {"none", INTACT_TYPE_NONE}, {"u8", INTACT_U8}, {"s8", INTACT_S8}, {"f32", INTACT_F32}};
constexpr Name<bool> kNoYes[] = {{"no", false}, {"yes", true}};
constexpr Name<intact_mode> kModes[] = {{"exact", INTACT_EXACT}, {"saturating", INTACT_SATURATING}};
constexpr Name<intact_isa> kIsas[] = {{"any", INTACT_ISA_ANY},
                                      {"avx2", INTACT_ISA_AVX2},
                                      {"avx_vnni", INTACT_ISA_AVX_VNNI},
                                      {"avx512", INTACT_ISA_AVX512},
                                      {"avx512_vnni", INTACT_ISA_AVX512_VNNI},
                                      {"amx_int8", INTACT_ISA_AMX_INT8}};
constexpr Name<intact_range_check> kRangeChecks[] = {{"checked", INTACT_RANGE_CHECKED},
                                                     {"unchecked", INTACT_RANGE_UNCHECKED}};
constexpr Name<BiasKind> kBiases[] = {
    {"none", BiasKind::kNone}, {"s32", BiasKind::kS32}, {"f32", BiasKind::kF32}};
constexpr Name<ScaleKind> kScales[] = {
    {"none", ScaleKind::kNone}, {"tensor", ScaleKind::kTensor}, {"channel", ScaleKind::kChannel}};
constexpr Name<ZeroPointKind> kZeroPointKinds[] = {{"tensor", ZeroPointKind::kTensor},
                                                   {"channel", ZeroPointKind::kChannel}};
constexpr Name<intact_activation> kActivations[] = {
    {"none", INTACT_ACTIVATION_NONE}, {"relu", INTACT_ACTIVATION_RELU}, {"clamp", INTACT_ACTIVATION_CLAMP}};

Error Invalid(std::string message) { return Error{INTACT_INVALID_ARGUMENT, std::move(message)}; }

template <class E, size_t kCount>
std::string_view NameOf(const Name<E> (&names)[kCount], E value) {
  const auto* found = std::find_if(std::begin(names), std::end(names),
                                   [value](const Name<E>& name) { return name.value == value; });
  return found == std::end(names) ? std::string_view("unknown") : found->text;
}

template <class E, size_t kCount>
Result<E> ValueOf(const Name<E> (&names)[kCount], std::string_view key, std::string_view text) {
  std::string known;
  for (const Name<E>& name : names) {
    if (name.text == text) return name.value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name.text);
  }
  return Invalid(fmt::format("{}: '{}' is unknown; expected one of {}", key, text, known));
}

Result<int64_t> NumberOf(std::string_view key, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Invalid(fmt::format("{}: '{}' is not an integer that fits 64 bits", key, text));
  }
  return value;
}

// A key of the text form: how to print a field, and how to read it.
struct Field {
  std::string_view key;
  std::function<std::string(const Problem&)> print;
  std::function<std::optional<Error>(std::string_view, Problem*)> read;
};

template <class T>
Field Number(std::string_view key, T Problem::*member) {
  return {key, [member](const Problem& p) { return fmt::format("{}", p.*member); },
          [key, member](std::string_view text, Problem* p) -> std::optional<Error> {
            const Result<int64_t> value = NumberOf(key, text);
            if (!value) return value.error();
            if (!std::in_range<T>(*value)) return Invalid(fmt::format("{}: {} is out of range", key, text));
            p->*member = static_cast<T>(*value);
            return std::nullopt;
          }};
}

template <class E, size_t kCount>
Field Choice(std::string_view key, E Problem::*member, const Name<E> (&names)[kCount]) {
  return {key, [member, &names](const Problem& p) { return std::string(NameOf(names, p.*member)); },
          [key, member, &names](std::string_view text, Problem* p) -> std::optional<Error> {
            const Result<E> value = ValueOf(names, key, text);
            if (!value) return value.error();
            p->*member = *value;
            return std::nullopt;
          }};
}

const std::vector<Field>& Fields() {
  static const std::vector<Field> kFields = {
      Number("m", &Problem::m),
      Number("n", &Problem::n),
      Number("k", &Problem::k),
      Number("za", &Problem::za),
      Number("zb", &Problem::zb),
      Choice("zbper", &Problem::zb_kind, kZeroPointKinds),
      Number("zc", &Problem::zc),
      Number("amax", &Problem::amax),
      Number("wmax", &Problem::wmax),
      Number("adeclmin", &Problem::declared_min),
      Number("adecl", &Problem::declared),
      Choice("rangecheck", &Problem::range_check, kRangeChecks),
      Choice("bias", &Problem::bias, kBiases),
      Choice("scale", &Problem::scale, kScales),
      Choice("act", &Problem::activation, kActivations),
      Choice("res", &Problem::residual, kResiduals),
      Number("zres", &Problem::zres),
      Choice("inplace", &Problem::in_place, kNoYes),
      Choice("fill", &Problem::fill, kFills),
      Number("seed", &Problem::seed),
      Number("apad", &Problem::a_pad),
      Number("cpad", &Problem::c_pad),
      Number("respad", &Problem::res_pad),
      Number("threads", &Problem::threads),
      Choice("mode", &Problem::mode, kModes),
      Choice("isa", &Problem::isa, kIsas),
  };
  return kFields;
}

// The problem whose fields a line may leave out; the scale is there wherever the output needs one.
Problem Defaults(intact_type a, intact_type b, intact_type c) {
  Problem p;
  p.a_type = a;
  p.b_type = b;
  p.c_type = c;
  p.scale = c == INTACT_S32 ? ScaleKind::kNone : ScaleKind::kTensor;
  return p;
}

// "u8s8s32" → three types.
Result<Problem> ParseTypes(std::string_view word) {
  std::array<intact_type, 3> types = {};
  std::string_view rest = word;
  for (intact_type& type : types) {
    const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [rest](const auto& name) { return rest.starts_with(name.text); });
    if (found == std::end(kTypes)) {
      return Invalid(fmt::format("types: '{}' is not like u8s8s32: activations, weights, output", word));
    }
    type = found->value;
    rest.remove_prefix(found->text.size());
  }
  if (!rest.empty()) {
    return Invalid(fmt::format("types: '{}' has '{}' too much; expected three, like u8s8s32", word, rest));
  }
  return Defaults(types[0], types[1], types[2]);
}

std::vector<std::string_view> Words(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string_view> words;
  for (;;) {
    const size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(kSpace), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

std::optional<Error> ReadWord(std::string_view word, std::set<std::string_view>* seen, Problem* problem) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return Invalid(fmt::format("'{}' is not key=value", word));
  const std::string_view key = word.substr(0, equals);
  const auto field =
      std::find_if(Fields().begin(), Fields().end(), [key](const Field& f) { return f.key == key; });
  if (field == Fields().end()) return Invalid(fmt::format("'{}': key '{}' is unknown", word, key));
  if (!seen->insert(key).second) return Invalid(fmt::format("'{}': {} is given twice", word, key));
  return field->read(word.substr(equals + 1), problem);
}

struct Range {
  std::string_view key;
  int64_t value, low, high;
};

std::optional<Error> CheckRanges(std::initializer_list<Range> ranges) {
  for (const Range& r : ranges) {
    if (r.value < r.low || r.value > r.high) {
      return Invalid(fmt::format("{}: {} is out of range; expected {} to {}", r.key, r.value, r.low, r.high));
    }
  }
  return std::nullopt;
}

int64_t LowestOf(intact_type type) { return type == INTACT_S8 ? -128 : 0; }
int64_t HighestOf(intact_type type) { return type == INTACT_S8 ? 127 : type == INTACT_U8 ? 255 : 0; }

std::optional<Error> CheckTypes(const Problem& p) {
  if (p.a_type != INTACT_U8 && p.a_type != INTACT_S8) {
    return Invalid(fmt::format("types: activations are {}; expected u8 or s8", ToString(p.a_type)));
  }
  if (p.b_type != INTACT_U8 && p.b_type != INTACT_S8) {
    return Invalid(fmt::format("types: weights are {}; expected u8 or s8", ToString(p.b_type)));
  }
  return std::nullopt;
}

std::optional<Error> CheckDeclaredRange(const Problem& p) {
  const int64_t highest = LowestOf(p.a_type) + p.declared;
  if (p.za > highest) {
    return Invalid(fmt::format("za: {} is beyond the declared range, which ends at {}", p.za, highest));
  }
  const int64_t lowest = LowestOf(p.a_type) + p.declared_min;
  if (p.za < lowest) {
    return Invalid(fmt::format("za: {} is beyond the declared range, which begins at {}", p.za, lowest));
  }
  if (p.fill == Fill::kStray && p.range_check == INTACT_RANGE_UNCHECKED) {
    return Invalid("fill: stray activations have no defined result with rangecheck=unchecked");
  }
  return std::nullopt;
}

std::optional<Error> CheckEpilogue(const Problem& p) {
  const bool s32 = p.c_type == INTACT_S32;
  if (s32 && p.scale != ScaleKind::kNone) return Invalid("scale: an s32 output has none");
  if (s32 && p.bias == BiasKind::kF32) return Invalid("bias: an s32 output takes s32 only");
  if (s32 && p.activation != INTACT_ACTIVATION_NONE) return Invalid("act: an s32 output has none");
  if (!s32 && p.scale == ScaleKind::kNone) {
    return Invalid(fmt::format("scale: output {} needs tensor or channel", ToString(p.c_type)));
  }
  return std::nullopt;
}

std::optional<Error> CheckResidual(const Problem& p) {
  if (p.c_type == INTACT_S32 && p.residual != INTACT_TYPE_NONE) return Invalid("res: an s32 output has none");
  if (p.residual == INTACT_TYPE_NONE && p.res_pad != 0) return Invalid("respad: there is no residual");
  if (!p.in_place) return std::nullopt;
  if (p.residual == INTACT_TYPE_NONE ||
      reference::ElementSize(p.residual) != reference::ElementSize(p.c_type)) {
    return Invalid(fmt::format("inplace: a residual in place of {} output must have elements of its size",
                               ToString(p.c_type)));
  }
  if (p.res_pad != 0) return Invalid("respad: a residual in place has cpad");
  return std::nullopt;
}

std::optional<Error> CheckSize(const Problem& p) {
  const std::pair<std::string_view, int64_t> tensors[] = {{"A", p.m * (p.k + p.a_pad)},
                                                          {"B", p.k * p.n},
                                                          {"C", p.m * (p.n + p.c_pad)},
                                                          {"the residual", p.m * (p.n + p.res_pad)}};
  for (const auto& [name, elements] : tensors) {
    if (elements > kMaxElements) {
      return Invalid(
          fmt::format("{} has {} elements; at most {} can be verified", name, elements, kMaxElements));
    }
  }
  if (p.m * p.n * p.k > kMaxMultiplyAdds) {
    return Invalid(fmt::format("m·n·k is {}; at most {} can be verified", p.m * p.n * p.k, kMaxMultiplyAdds));
  }
  return std::nullopt;
}

}  // namespace

std::string Problem::ToString() const {
  const Problem defaults = Defaults(a_type, b_type, c_type);
  std::string line = fmt::format("gemm {}{}{}", verify::ToString(a_type), verify::ToString(b_type),
                                 verify::ToString(c_type));
  for (const Field& field : Fields()) {
    const std::string value = field.print(*this);
    const bool dimension = field.key == "m" || field.key == "n" || field.key == "k";
    if (dimension || value != field.print(defaults)) line += fmt::format(" {}={}", field.key, value);
  }
  return line;
}

Result<Problem> Problem::Parse(std::string_view line) {
  const std::vector<std::string_view> words = Words(line);
  if (words.empty() || words[0] != "gemm") {
    return Invalid(fmt::format("'{}' does not begin with 'gemm'", words.empty() ? "" : words[0]));
  }
  if (words.size() < 2) return Invalid("types are missing after 'gemm'; expected three, like u8s8s32");
  Result<Problem> problem = ParseTypes(words[1]);
  if (!problem) return problem;
  std::set<std::string_view> seen;
  for (size_t i = 2; i < words.size(); ++i) {
    if (std::optional<Error> error = ReadWord(words[i], &seen, &*problem)) return *error;
  }
  for (const std::string_view key : {"m", "n", "k"}) {
    if (!seen.contains(key)) return Invalid(fmt::format("{} is missing", key));
  }
  if (std::optional<Error> error = problem->Check()) return *error;
  return problem;
}

std::optional<Error> Problem::Check() const {
  if (std::optional<Error> types = CheckTypes(*this)) return types;
  std::optional<Error> error =
      CheckRanges({{"m", m, 1, kMaxDimension},
                   {"n", n, 1, kMaxDimension},
                   {"k", k, 1, kMaxDimension},
                   {"za", za, LowestOf(a_type), HighestOf(a_type)},
                   {"zb", zb, LowestOf(b_type), HighestOf(b_type)},
                   {"zc", zc, LowestOf(c_type), HighestOf(c_type)},
                   {"amax", amax, 0, 255},
                   {"wmax", wmax, 1, 128},
                   {"adecl", declared, 1, 255},
                   {"adeclmin", declared_min, 0, declared},
                   {"apad", a_pad, 0, 1 << 16},
                   {"cpad", c_pad, 0, 1 << 16},
                   {"zres", zres, LowestOf(residual), HighestOf(residual)},
                   {"respad", res_pad, 0, 1 << 16},
                   {"threads", threads, 0, 1024},
                   {"seed", static_cast<int64_t>(seed), 0, std::numeric_limits<int64_t>::max()}});
  if (error) return error;
  if (std::optional<Error> range = CheckDeclaredRange(*this)) return range;
  if (std::optional<Error> epilogue = CheckEpilogue(*this)) return epilogue;
  if (std::optional<Error> residual_error = CheckResidual(*this)) return residual_error;
  return CheckSize(*this);
}

reference::Gemm Materialize(const Problem& problem) {
  reference::Gemm gemm;
  gemm.m = problem.m;
  gemm.n = problem.n;
  gemm.k = problem.k;
  gemm.a_type = problem.a_type;
  gemm.b_type = problem.b_type;
  gemm.c_type = problem.c_type;
  gemm.a_zero_point = problem.za;
  gemm.c_zero_point = problem.zc;
  gemm.activation = problem.activation;
  gemm.a = FillActivations(problem);
  if (problem.a_type == INTACT_S8) {
    for (uint8_t& a : gemm.a) a = static_cast<uint8_t>(a ^ 0x80);  // the distance d becomes d − 128
  }
  gemm.b = FillWeights(problem);
  if (problem.b_type == INTACT_U8) {
    for (int8_t& b : gemm.b) b = static_cast<int8_t>(b ^ 0x80);  // w becomes w + 128
  }
  gemm.b_zero_points = FillWeightZeroPoints(problem);
  FillEpilogue(problem, &gemm);
  return gemm;
}

RunOptions RunOptionsOf(const Problem& problem) {
  return {problem.mode,         problem.isa,      problem.a_pad,       problem.c_pad,   problem.threads,
          problem.declared_min, problem.declared, problem.range_check, problem.res_pad, problem.in_place};
}

std::span<const Fill> AllFills() {
  static const std::vector<Fill> kAll = [] {
    std::vector<Fill> all;
    for (const Name<Fill>& name : kFills) all.push_back(name.value);
    return all;
  }();
  return kAll;
}

std::string_view ToString(Fill fill) { return NameOf(kFills, fill); }
std::string_view ToString(intact_mode mode) { return NameOf(kModes, mode); }
std::string_view ToString(intact_type type) { return NameOf(kTypes, type); }
Result<intact_isa> ParseIsa(std::string_view name) { return ValueOf(kIsas, "isa", name); }
Result<intact_mode> ParseMode(std::string_view name) { return ValueOf(kModes, "mode", name); }

}  // namespace intact::verify
