#include "verify/sweep/reproducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/operation.h"
#include "core/result.h"
#include "core/types.h"
#include "reference/models/arithmetic.h"
#include "support/c_text.h"
#include "support/origin.h"
#include "verify/explain/claim.h"
#include "verify/explain/judge.h"
#include "verify/problem/fields.h"
#include "verify/targets/guarded_grouped.h"
#include "verify/targets/guarded_run.h"

namespace intact::verify {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t kMostElements = 4096;
constexpr std::chrono::seconds kValuesTime{10};
constexpr int kAttempts = 5;  // for a failure that comes now and then

Error NoFile(std::string why) { return {INTACT_UNSUPPORTED, std::move(why)}; }

// The outputs that the target should have made; the exact ones if it claims no arithmetic.
const Bytes& Expected(const Target& target, const Oracle& oracle) {
  const std::string claim = ClaimOf(target.Arithmetic(), KindOf(oracle));
  return oracle.Predict(reference::ParseArithmetic(claim).value_or(reference::Arithmetic()));
}

// Whether the operation fails in a process of its own.
bool FailsAlone(const Target& target, const Oracle& oracle, const RunOptions& options) {
  const std::unique_ptr<Target> fresh = target.Fresh();
  return Fails(fresh ? *fresh : target, oracle, options);
}

// Why the operation fails there, in words; an error if a file would not show it.
Result<std::string> ReasonAlone(const Target& target, const Oracle& oracle, const RunOptions& options) {
  const std::unique_ptr<Target> fresh = target.Fresh();
  const Target& alone = fresh ? *fresh : target;
  const Result<Judgement> judgement = Judge(alone, oracle, options);
  if (judgement) return judgement->Passed() ? "it fails now and then" : judgement->failure;
  if (alone.LastFailure().kind == FailureKind::kCleanExit) {
    return NoFile("it ends the process with status 0, like a program that finds nothing wrong");
  }
  return judgement.error().message;
}

// The activation in the activation range that is nearest to zero.
uint8_t SmallestActivation(const core::Linear& linear) {
  const bool has_range = linear.a_min != 0 || linear.a_max != 0;
  return static_cast<uint8_t>(has_range ? std::clamp(0, linear.a_min, linear.a_max) : 0);
}

// Makes values zero as long as the operation still fails: all values, halves, quarters …
class Zeroing {
 public:
  Zeroing(const Target& target, const RunOptions& options, reference::Operation* operation)
      : target_(target),
        options_(options),
        operation_(*operation),
        end_(std::chrono::steady_clock::now() + kValuesTime) {}

  // `values`: of the operation. `value`: what counts as zero.
  template <class T>
  void Run(std::vector<T>* values, T value) {
    for (size_t size = values->size(); size > 0; size = size == 1 ? 0 : (size + 1) / 2) {
      for (size_t first = 0; first < values->size(); first += size) TryZero(values, first, size, value);
    }
  }

 private:
  template <class T>
  void TryZero(std::vector<T>* values, size_t first, size_t size, T value) {
    const std::span<T> part = std::span(*values).subspan(first, std::min(size, values->size() - first));
    const std::vector<T> before(part.begin(), part.end());
    if (std::ranges::all_of(before, [value](T old) { return old == value; })) return;
    if (std::chrono::steady_clock::now() > end_) return;
    std::ranges::fill(part, value);
    if (!FailsAlone(target_, operation_, options_)) std::ranges::copy(before, part.begin());
  }

  const Target& target_;
  const RunOptions& options_;
  reference::Operation& operation_;
  const std::chrono::steady_clock::time_point end_;
};

// Those of grouped weights stay as they are.
void SimplifyValues(const Target& target, const RunOptions& options, reference::Operation* operation) {
  if (std::holds_alternative<reference::Grouped>(*operation)) return;
  Zeroing zeroing(target, options, operation);
  reference::Linear& linear = LinearOf(*operation);
  zeroing.Run(&linear.bias_s32, 0);
  zeroing.Run(&linear.bias_f32, 0.0f);
  zeroing.Run(&linear.b, int8_t{0});
  if (!linear.IsDynamic()) zeroing.Run(&linear.a, SmallestActivation(linear));
  zeroing.Run(&linear.residual, uint8_t{0});
}

// ----- C --------------------------------------------------------------------------------------------------

template <class T>
std::string Array(std::string_view type, std::string_view name, std::span<const T> values) {
  std::string text = fmt::format("static const {} {}[] = {{", type, name);
  for (size_t i = 0; i < values.size(); ++i) {
    text += i % 16 == 0 ? "\n    " : " ";
    if constexpr (std::is_floating_point_v<T>) {
      text += support::c::Literal(values[i]) + ",";
    } else {
      text += support::c::Literal(static_cast<int64_t>(values[i])) + ",";
    }
  }
  return text + "\n};\n";
}

// "  linear.a_zero_point = 3;\n"; nothing for a field that has the initializer's value.
class Fields {
 public:
  explicit Fields(std::string_view object) : object_(object) {}
  /// A visitor of core/operation.h: the descriptor, and the initializer.
  void operator()(std::string_view field, const auto& value, const auto& usual) {
    if constexpr (requires { std::begin(value); }) {
      for (size_t i = 0; i < std::size(value); ++i)
        (*this)(fmt::format("{}[{}]", field, i), value[i], usual[i]);
    } else if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(value)>>) {
      if (std::bit_cast<uint32_t>(value) != std::bit_cast<uint32_t>(usual))
        Add(field, support::c::Literal(value));
    } else {
      if (value != usual) Add(field, support::c::Literal(int64_t{value}));
    }
  }
  // `array`: the name of a constant in the file.
  void SetVector(std::string_view field, const void* value, std::string_view array) {
    if (value != nullptr) Add(field, fmt::format("Input(1, sizeof {0}, sizeof {0}, {0})", array));
  }
  const std::string& text() const { return text_; }

 private:
  void Add(std::string_view field, std::string_view value) {
    text_ += fmt::format("  {}.{} = {};\n", object_, field, value);
  }
  std::string object_, text_;
};

std::string LinearFields(const intact_linear_desc& linear) {
  const intact_linear_desc usual = INTACT_LINEAR_DESC_INIT;
  Fields fields("linear");
  core::ForEachScalar(fields, linear, usual);
  core::ForEachPostOpField(fields, linear, usual);
  core::ForEachColumnVector(
      [&fields](std::string_view name, const auto* values) { fields.SetVector(name, values, name); }, linear);
  fields.SetVector("lookup_table", linear.lookup_table, "lookup_table");
  fields("b_zero_point_count", linear.b_zero_point_count, usual.b_zero_point_count);
  fields("scale_count", linear.scale_count, usual.scale_count);
  return fields.text();
}

std::string DescFields(const intact_gemm_desc& desc) {
  const intact_gemm_desc usual = INTACT_GEMM_DESC_INIT;
  Fields fields("desc");
  core::ForEachGemmNumber(fields, desc, usual);
  return fields.text();
}

std::string DescFields(const intact_conv_desc& desc) {
  const intact_conv_desc usual = INTACT_CONV_DESC_INIT;
  Fields fields("desc");
  core::ForEachGeometryField(fields, desc, usual);
  return fields.text();
}

// A tensor as it lies in memory: `rows` of `columns` elements, `stride` apart.
struct Image {
  int64_t rows, columns, stride;
  int64_t elements() const { return rows * columns; }
};

template <class T>
std::span<const T> Elements(const void* data, int64_t count) {
  return {static_cast<const T*>(data), static_cast<size_t>(count)};
}

std::string TypedArray(intact_type type, std::string_view name, const void* data, int64_t count) {
  switch (type) {
    case INTACT_U8:
      return Array("uint8_t", name, Elements<uint8_t>(data, count));
    case INTACT_S8:
      return Array("int8_t", name, Elements<int8_t>(data, count));
    case INTACT_S32:
      return Array("int32_t", name, Elements<int32_t>(data, count));
    case INTACT_F32:
      return Array("float", name, Elements<float>(data, count));
    case INTACT_TYPE_NONE:
      return {};
    default:  // half floats by their bits
      return Array("uint16_t", name, Elements<uint16_t>(data, count));
  }
}

// "gemm" or "conv", as it is written in C.
struct Word {
  std::string_view small, large;
};
Word WordOf(const reference::Operation& operation) {
  return std::holds_alternative<reference::Gemm>(operation) ? Word{"gemm", "GEMM"} : Word{"conv", "CONV"};
}

// Calls visit(name, values) for the zero points and the scales of A that are passed to runs.
template <class Visit>
void ForEachGiven(const reference::Operation& operation, const Visit& visit) {
  const reference::Linear& linear = LinearOf(operation);
  if (linear.IsDynamic()) return;
  const bool has_one = linear.a_quantization == INTACT_QUANTIZATION_TENSOR;
  const auto given = [has_one](const auto& values) {
    return std::span(values).first(std::min(values.size(), has_one ? 1 : values.size()));
  };
  if (!linear.a_zero_points.empty()) visit("a_zero_points", given(linear.a_zero_points));
  if (!linear.a_scales.empty()) visit("a_scales", given(linear.a_scales));
}

std::string ArgsFields(const reference::Gemm& gemm) {
  return fmt::format("  args.m = {};\n  args.batch = {};\n", gemm.m, gemm.batch);
}
std::string ArgsFields(const reference::Conv& conv) {
  return fmt::format("  args.batch = {};\n", conv.geometry.batch);
}

// {0} the target as the user named it, {1} the reason, {2} a note or nothing, {3} the command that runs the
// problem again, {4} the command that compiles the file
constexpr std::string_view kHead = R"(/* {0}
 * {1}
{2} *
 * With intact: {3}
 * Without it: {4} && ./failure
 * If intact is not installed, add -I and the folder include of its source. */
#include <intact/target.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xmmintrin.h>

)";

constexpr std::string_view kOfAny =
    " * The target claims no arithmetic (\"any\"), so the outputs expected below are exact. The first that\n"
    " * differs may be one that the target's arithmetic explains, and not the one above.\n";

constexpr std::string_view kMemory = R"(
/* What unwritten memory holds, how many bytes before an inaccessible page tensors end, and whether they begin
 * behind such a page instead. None of it may make a difference. */
static unsigned char fill;
static size_t shift;
static int behind_a_page;

/* Rows of a tensor. The bytes from `begin` to `end` can be touched. */
typedef struct {
  size_t rows, row_bytes, stride_bytes;
  unsigned char *mapping, *begin, *data, *end;
} Tensor;

static Tensor tensors[16];
static int tensor_count;

/* `values`: dense rows, or NULL. */
static const Tensor* Allocate(size_t rows, size_t row_bytes, size_t stride_bytes, const void* values) {
  const size_t page = 4096, bytes = (rows - 1) * stride_bytes + row_bytes;
  const size_t usable = page + (bytes + shift + page - 1) / page * page;
  Tensor* tensor = &tensors[tensor_count++];
  unsigned char* mapping =
      mmap(NULL, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) exit(2);
  unsigned char *begin = behind_a_page ? mapping + page : mapping, *end = mapping + usable;
  unsigned char* data = behind_a_page ? begin : end - shift - bytes;
  *tensor = (Tensor){rows, row_bytes, stride_bytes, mapping, begin, data, end};
  memset(begin, fill, (size_t)(end - begin));
  for (size_t row = 0; values != NULL && row < rows; ++row)
    memcpy(tensor->data + row * stride_bytes, (const char*)values + row * row_bytes, row_bytes);
  if (behind_a_page) mprotect(mapping, page, PROT_NONE);
  mprotect(end, page, PROT_NONE);
  return tensor;
}

/* Like Allocate(), but read-only. */
static const void* Input(size_t rows, size_t row_bytes, size_t stride_bytes, const void* values) {
  const Tensor* tensor = Allocate(rows, row_bytes, stride_bytes, values);
  mprotect(tensor->begin, (size_t)(tensor->end - tensor->begin), PROT_READ);
  return tensor->data;
}

static void FreeAll(void) {
  while (tensor_count > 0) {
    const Tensor* tensor = &tensors[--tensor_count];
    munmap(tensor->mapping, (size_t)(tensor->end - tensor->mapping) + 4096);
  }
}

/* Whether a byte that belongs to no row was written. */
static int WroteOutside(const Tensor* c) {
  for (const unsigned char* byte = c->begin; byte < c->end; ++byte) {
    const ptrdiff_t at = byte - c->data;
    if (at >= 0 && (size_t)at / c->stride_bytes < c->rows && (size_t)at % c->stride_bytes < c->row_bytes)
      continue;
    if (*byte == fill) continue;
    printf("wrote outside C: %td bytes behind its start\n", at);
    return 1;
  }
  return 0;
}

/* Fills memory of the stack and of malloc() that will be used again. */
__attribute__((noinline)) static void Scribble(void) {
  unsigned char stack[65536];
  memset(stack, fill, sizeof stack);
  __asm__ volatile("" : : "r"(stack) : "memory"); /* or the compiler would leave it out */
  mallopt(M_PERTURB, fill);
  for (size_t size = 24; size <= 1040; size += 16) {
    void* blocks[8];
    for (int i = 0; i < 8; ++i) {
      blocks[i] = malloc(size);
      memset(blocks[i], fill, size);
      __asm__ volatile("" : : "r"(blocks[i]) : "memory");
    }
    for (int i = 0; i < 8; ++i) free(blocks[i]);
  }
}

/* Floating-point control that a callee must keep: MXCSR without its flags, and the x87's rounding. */
static unsigned FloatControl(void) {
  unsigned short x87;
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return (_mm_getcsr() & ~0x3fu) | (x87 & 0xc00u) << 16;
}
)";

// How an output is printed.
constexpr std::string_view kValue = R"(
static double Value({} output) {{ return (double)output; }}
)";
// Code for half floats: {0} bits of the fraction, {1} the bits of an infinity, {2} the exponent of the
// least normal number, in excess of a float's.
constexpr std::string_view kValueOfHalf = R"(
static double Value(uint16_t half) {{
  const uint32_t magnitude = half & 0x7fff, bits = magnitude << (23 - {0});
  float output;
  memcpy(&output, &bits, sizeof output);
  output *= 0x1p{2}f;
  if (magnitude >= {1:#x}) output = magnitude > {1:#x} ? NAN : INFINITY;
  return half >> 15 ? -output : output;
}}
)";

// {0} gemm or conv, {1} GEMM or CONV, {2} fields of linear, {3} fields of desc, {4} fields of args
constexpr std::string_view kDescribed = R"(  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
{2}  intact_{0}_desc desc = INTACT_{1}_DESC_INIT;
{3}  intact_{0}_args args = INTACT_{1}_ARGS_INIT;
{4})";

// {0} code that sets the arguments, {1} the call, {2} the type of outputs, {3} rows, {4} columns
constexpr std::string_view kRun = R"(
/* Whether the target did something wrong. */
static int Run(const intact_target* target) {{
  char message[INTACT_TARGET_MESSAGE_BYTES] = "";
{0}  Scribble();
  const unsigned control = FloatControl();
  const intact_status status = target->{1};
  if (FloatControl() != control) return puts("floating-point control (MXCSR) is changed"), 1;
  if (status != INTACT_OK) return printf("status %d: %s\n", (int)status, message), 1;
  if (WroteOutside(c)) return 1;
  for (size_t row = 0; row < {3}; ++row) {{
    for (size_t column = 0; column < {4}; ++column) {{
      {2} output;
      memcpy(&output, c->data + row * c->stride_bytes + column * sizeof output, sizeof output);
      if (memcmp(&output, &expected[row * {4} + column], sizeof output) == 0) continue;
      printf("row %zu, column %zu is %.10g instead of %.10g\n", row, column, Value(output),
             Value(expected[row * {4} + column]));
      return 1;
    }}
  }}
  FreeAll();
  return 0;
}}
)";

// {} the plug-in's options
constexpr std::string_view kMain = R"(
int main(void) {{
  char message[INTACT_TARGET_MESSAGE_BYTES] = "";
  const intact_target* target = intact_target_open(INTACT_TARGET_ABI, {}, message);
  if (target == NULL) return fprintf(stderr, "%s\n", message), 2;
  for (int run = 0; run < 30; ++run) {{
    fill = run % 3 == 0 ? 0xa5 : 0x5a;
    shift = run % 3 == 1 ? 61 : 0;
    behind_a_page = run % 3 == 2;
    if (!Run(target)) continue;
    if (behind_a_page) printf("in run %d, where tensors begin behind a page", run);
    if (!behind_a_page) printf("in run %d, where tensors end %zu bytes before a page", run, shift);
    printf(" and unwritten bytes are %#x\n", fill);
    return 1;
  }}
  puts("all outputs are right");
  return 0;
}}
)";

std::string VectorsOf(const core::Linear& linear) {
  std::string text;
  const auto add = [&text]<class T>(std::string_view name, const std::vector<T>& values) {
    const std::string_view type = std::is_floating_point_v<T> ? "float" : "int32_t";
    if (!values.empty()) text += Array(type, name, std::span(values));
  };
  core::ForEachColumnVector(add, linear);
  if (!linear.lookup_table.empty()) text += Array("uint8_t", "lookup_table", std::span(linear.lookup_table));
  return text;
}

// `claim`: of the target, for the problem.
std::string Head(std::string_view claim, const Problem& problem, const ReproducerOptions& names,
                 const std::string& reason) {
  const std::array<std::string, 6> replay = {"intact",           "verify",   "replay",
                                             problem.ToString(), "--target", names.target};
  // If a plug-in has a soname, the loader looks for it in the folders that the program names.
  const std::string folder = std::filesystem::path(names.plugin).parent_path().string();
  const std::array<std::string, 9> compile = {"cc",       names.file, names.plugin, "-Xlinker", "-rpath",
                                              "-Xlinker", folder,     "-o",         "failure"};
  return fmt::format(kHead, support::c::Comment(names.target), support::c::Comment(reason),
                     claim == "any" ? kOfAny : "", support::c::Comment(support::ShellLine(replay)),
                     support::c::Comment(support::ShellLine(compile)));
}

// "Input(2, 3, 5, a)", of elements of `bytes` bytes.
std::string InC(std::string_view function, const Image& image, int64_t bytes, std::string_view values) {
  return fmt::format("{}({}, {}, {}, {})", function, image.rows, image.columns * bytes, image.stride * bytes,
                     values);
}

// The tensors of an operation as they lie in memory. `residual` has no elements if there is none.
struct Images {
  Image a, b, c, residual;
  int64_t Largest() const {
    return std::max({a.elements(), b.elements(), c.elements(), residual.elements()});
  }
};

Images ImagesOf(const reference::Operation& operation, const RunOptions& options) {
  const auto image = [](const reference::Extents& tensor, int64_t pad) {
    return Image{tensor.rows, tensor.columns, tensor.columns + pad};
  };
  if (const auto* const grouped = std::get_if<reference::Grouped>(&operation)) {
    return {image({grouped->m, grouped->k}, options.a_pad),
            image({grouped->columns(), grouped->k}, 0),
            image(OutputOf(operation), options.c_pad),
            {}};
  }
  const TensorLayout a =
      reference::VisitLinear([&](const auto& one) { return InputLayoutOf(one, options); }, operation);
  const TensorLayout b =
      reference::VisitLinear([&](const auto& one) { return WeightLayoutOf(one, options); }, operation);
  Images images = {{a.rows, a.elements, a.stride},
                   {b.rows, b.elements, b.stride},
                   image(OutputOf(operation), options.c_pad),
                   {}};
  if (LinearOf(operation).HasResidual()) {
    images.residual = image(OutputOf(operation), options.in_place ? options.c_pad : options.res_pad);
  }
  return images;
}

std::string WriteArrays(const reference::Operation& operation, RunOptions options, const Images& images) {
  options.b_pad = 0;
  const reference::Linear& linear = LinearOf(operation);
  const std::vector<int8_t> b =
      reference::VisitLinear([&](const auto& one) { return StoredWeights(one, options); }, operation);
  const std::vector<uint8_t> a =
      reference::VisitLinear([&](const auto& one) { return StoredInput(one, options); }, operation);
  std::string text = TypedArray(linear.IsDynamic() ? linear.a_source_type : linear.a_type, "a", a.data(),
                                images.a.elements());
  ForEachGiven(operation, [&]<class T>(std::string_view name, std::span<const T> values) {
    text += Array(std::is_floating_point_v<T> ? "float" : "int32_t", name, values);
  });
  text += TypedArray(linear.b_type, "b", b.data(), images.b.elements());
  text += VectorsOf(linear);
  return text +
         TypedArray(linear.residual_type(), "residual", linear.residual.data(), images.residual.elements());
}

// Code that sets `args`, and allocates the tensors `b_data` and `c`.
std::string WriteArgs(const reference::Operation& operation, const RunOptions& options,
                      const Images& images) {
  const reference::Linear& linear = LinearOf(operation);
  const bool has_residual = linear.HasResidual();
  std::string text = reference::VisitLinear([](const auto& one) { return ArgsFields(one); }, operation);
  text += fmt::format("  args.a = {};\n  args.a_stride = {};\n",
                      InC("Input", images.a, linear.GivenABytes(), "a"), images.a.stride);
  if (options.a_by_columns) text += "  args.a_transposed = 1;\n";
  Fields args("args");
  ForEachGiven(operation,
               [&](std::string_view name, const auto& values) { args.SetVector(name, values.data(), name); });
  text += args.text();
  text += fmt::format("  const void* b_data = {};\n", InC("Input", images.b, 1, "b"));
  text +=
      fmt::format("  const Tensor* c = {};\n", InC("Allocate", images.c, core::BytesOf(linear.c_type),
                                                   has_residual && options.in_place ? "residual" : "NULL"));
  text += fmt::format("  args.c = c->data;\n  args.c_stride = {};\n", images.c.stride);
  text += fmt::format("  args.threads = {};\n", options.threads);
  if (!has_residual) return text;
  const std::string residual =
      options.in_place ? "c->data"
                       : InC("Input", images.residual, core::BytesOf(linear.residual_type()), "residual");
  return text + fmt::format("  args.residual = {};\n  args.residual_stride = {};\n", residual,
                            images.residual.stride);
}

std::string ValueOf(const core::ElementType& type) {
  if (!core::IsHalfFloat(type.type)) return fmt::format(kValue, type.c_name);
  const int excess = type.exponent - core::TraitsOf(INTACT_F32).exponent;
  return fmt::format(kValueOfHalf, type.fraction, core::InfinityOf(type), excess);
}

// What differs between the kinds of operations in a file.
struct CallInC {
  std::string arrays;     // constants, without the expected outputs
  std::string arguments;  // code that describes the operation, and allocates the tensor `c`
  std::string call;
};

// Of a GEMM or a convolution.
CallInC CallOf(const reference::Operation& operation, const RunOptions& options, const Images& images) {
  const auto [small, large] = WordOf(operation);
  const auto [linear, desc] = reference::VisitLinear(
      [&](const auto& one) {
        const auto described = DescOf(one, options);
        return std::pair(LinearFields(described.linear), DescFields(described));
      },
      operation);
  return {WriteArrays(operation, options, images),
          fmt::format(kDescribed, small, large, linear, desc, WriteArgs(operation, options, images)),
          fmt::format("{}(&desc, &linear, b_data, &args, message)", small)};
}

// A field that points to a read-only copy of an array, which may be empty.
template <class T>
void AddArray(std::string_view type, std::string_view object, std::string_view field,
              const std::vector<T>& values, std::string* arrays, std::string* fields) {
  if (values.empty()) return;
  *arrays += Array(type, field, std::span(values));
  *fields += fmt::format("  {0}.{1} = Input(1, sizeof {1}, sizeof {1}, {1});\n", object, field);
}

CallInC CallOf(const reference::Grouped& grouped, const RunOptions& run, const Images& images) {
  const intact_grouped_desc given = DescOf(grouped, run), usual = INTACT_GROUPED_DESC_INIT;
  const bool is_dynamic = grouped.a_source_type != INTACT_TYPE_NONE;
  const bool is_signed = grouped.codes().is_signed();
  Fields numbers("desc");
  core::ForEachGroupedNumber(numbers, given, usual);
  numbers("b_stride_n", grouped.ColumnBytes(grouped.k), usual.b_stride_n);
  numbers("activation", given.activation, usual.activation);
  numbers("clamp_min", given.clamp_min, usual.clamp_min);
  numbers("clamp_max", given.clamp_max, usual.clamp_max);
  std::string arrays, desc = numbers.text(), args;
  arrays += TypedArray(grouped.scale_type, "b_scales", grouped.b_scales.data(),
                       grouped.columns() * grouped.groups());
  desc += "  desc.b_scales = Input(1, sizeof b_scales, sizeof b_scales, b_scales);\n";
  if (grouped.has_b_zero_points) {
    AddArray(is_signed ? "int8_t" : "uint8_t", "desc", "b_zero_points", grouped.b_zero_points, &arrays,
             &desc);
  }
  AddArray("float", "desc", "b_minimums", grouped.b_minimums, &arrays, &desc);
  AddArray("float", "desc", "bias_f32", grouped.bias_f32, &arrays, &desc);
  const intact_type a_type = is_dynamic ? grouped.a_source_type : grouped.a_type;
  const Image &a = images.a, &c = images.c;
  arrays += TypedArray(a_type, "a", is_dynamic ? grouped.a_source.data() : grouped.a.data(), a.elements());
  args += fmt::format("  args.m = {};\n  args.threads = {};\n", grouped.m, run.threads);
  args += fmt::format("  args.a = {};\n  args.a_stride = {};\n", InC("Input", a, core::BytesOf(a_type), "a"),
                      a.stride);
  if (!is_dynamic) {
    AddArray("float", "args", "a_scales", grouped.a_scales, &arrays, &args);
    AddArray("int32_t", "args", "a_zero_points", grouped.a_zero_points, &arrays, &args);
  }
  if (grouped.experts > 1) AddArray("int64_t", "args", "expert_rows", grouped.expert_rows, &arrays, &args);
  arrays += Array("uint8_t", "b", std::span<const uint8_t>(reference::BytesOfB(grouped)));
  args += "  const void* b_data = Input(1, sizeof b, sizeof b, b);\n";
  args += fmt::format("  const Tensor* c = {};\n", InC("Allocate", c, core::BytesOf(grouped.c_type), "NULL"));
  args += fmt::format("  args.c = c->data;\n  args.c_stride = {};\n", c.stride);
  return {arrays,
          fmt::format("  intact_grouped_desc desc = INTACT_GROUPED_DESC_INIT;\n{}"
                      "  intact_grouped_args args = INTACT_GROUPED_ARGS_INIT;\n{}",
                      desc, args),
          "grouped(&desc, b_data, &args, message)"};
}

// `expected`: the outputs that the target should make.
std::string WriteC(const Oracle& oracle, const Bytes& expected, const RunOptions& options,
                   const Images& images, const std::string& plugin_options) {
  const reference::Grouped* const grouped = oracle.grouped();
  const CallInC call =
      grouped != nullptr ? CallOf(*grouped, options, images) : CallOf(oracle.operation(), options, images);
  const core::ElementType& type = core::TraitsOf(oracle.type());
  return call.arrays + TypedArray(type.type, "expected", expected.data(), images.c.elements()) +
         std::string(kMemory) + ValueOf(type) +
         fmt::format(kRun, call.arguments, call.call, type.c_name, images.c.rows, images.c.columns) +
         fmt::format(kMain, support::c::String(plugin_options));
}

}  // namespace

Result<std::string> Reproducer(const Target& target, const Problem& problem, const ReproducerOptions& names) {
  if (const std::string_view why = WhyNoFile(problem); !why.empty()) return NoFile(std::string(why));
  if (problem.m == 0 || (problem.conv && problem.conv->batch == 0)) return NoFile("it has no outputs");
  reference::Operation operation = Materialize(problem);
  RunOptions options = RunOptionsOf(problem);
  options.open_extents = false;
  options.in_all_places = true;
  const Images images = ImagesOf(operation, options);
  if (images.Largest() > kMostElements) {
    return NoFile(
        fmt::format("it has a tensor of {} elements, more than {}", images.Largest(), kMostElements));
  }
  bool fails = false;
  const Oracle as_it_was(operation);
  for (int i = 0; i < kAttempts && !fails; ++i) fails = FailsAlone(target, as_it_was, options);
  if (!fails) return NoFile("it does not fail in a process that has run nothing else");
  SimplifyValues(target, options, &operation);
  const Oracle oracle(operation);
  ASSIGN_OR_RETURN(const std::string reason, ReasonAlone(target, oracle, options));
  return Head(ClaimOf(target.Arithmetic(), KindOf(problem)), problem, names, reason) +
         WriteC(oracle, Expected(target, oracle), options, images, names.options);
}

}  // namespace intact::verify
