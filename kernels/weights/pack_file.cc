#include "kernels/weights/pack_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "core/operation.h"
#include "core/result.h"
#include "kernels/runtime/blocking.h"

namespace intact::kernels {
namespace {

constexpr int64_t kAlignment = 64;

struct PackHeader {
  ImageBegin begin;
  int64_t n, k;
  // intact_linear_desc: the bits of its fields, in the order of the lists in core/operation.h, then zeros
  std::array<uint32_t, 24> numbers;
  std::array<uint32_t, 16> post_ops;
  uint32_t vectors;  // bit i: column vector i of its list is present; bit 31: a lookup table is
  // intact_conv_desc; all 0 in the file of a GEMM
  int32_t spatial_dims, transposed;
  uint32_t choices;  // number of TunedChoices
  int64_t input_channels, output_channels, groups;
  std::array<int64_t, INTACT_MAX_SPATIAL> input, kernel, stride, dilation, pad_begin, pad_end, output_pad;
  int64_t schedules, schedule_bytes;  // the number of SavedSchedules, and the size of their section
  int64_t usual_m;                    // 0 in the file of a convolution
};
static_assert(std::is_trivially_copyable_v<PackHeader> && sizeof(PackHeader) % 8 == 0);
constexpr ImageBegin kBegin = {kPackMagic, 10, sizeof(PackHeader), 0, 0};
static_assert(std::endian::native == std::endian::little);

// The number of fields of intact_linear_desc in each list.
struct FieldCounts {
  size_t numbers = 0, post_ops = 0, column_vectors = 0;
};
constexpr FieldCounts kCounts = [] {
  FieldCounts counts;
  const intact_linear_desc desc = INTACT_LINEAR_DESC_INIT;
  core::ForEachScalar([&](auto, const auto&) { ++counts.numbers; }, desc);
  core::ForEachPostOpField([&](auto, const auto&) { ++counts.post_ops; }, desc);
  core::ForEachColumnVector([&](auto, const auto&) { ++counts.column_vectors; }, desc);
  return counts;
}();
static_assert(kCounts.numbers <= decltype(PackHeader::numbers)().size());
static_assert(kCounts.post_ops <= decltype(PackHeader::post_ops)().size());
static_assert(kCounts.column_vectors < 31, "bit 31 is the table's");

constexpr uint32_t kTableBit = 1u << 31;
bool HasLookupTable(const PackHeader& header) { return (header.vectors & kTableBit) != 0; }

// A visitor of fields that writes their bits to an array, and one that reads them.
template <class Array>
auto WriteBits(Array* bits) {
  return
      [next = bits->begin()](auto, const auto& field) mutable { *next++ = std::bit_cast<uint32_t>(field); };
}
template <class Array>
auto ReadBits(const Array& bits) {
  return [next = bits.begin()](auto, auto& field) mutable {
    field = std::bit_cast<std::remove_reference_t<decltype(field)>>(*next++);
  };
}

struct PackedCpu {
  std::array<char, 64> name;
};
struct PackedChoice {
  int64_t m;
  std::array<char, 120> kernel;
};
struct PackedConvChoice {
  std::array<int64_t, INTACT_MAX_SPATIAL> input;
  int64_t phase;
  std::array<char, 32> variant;
  std::array<char, 128> kernel;
};
struct PackedSchedule {
  int64_t phase, unit;
  std::array<char, 48> layout;
  ScheduleKey key;
  int64_t quads, items, groups;  // the estimate
  int64_t order_bytes;           // 0: the schedule was only estimated
};
static_assert(std::is_trivially_copyable_v<PackedSchedule> && sizeof(PackedSchedule) == 128);
static_assert(sizeof(PackedChoice) % kAlignment == 0 && sizeof(PackedCpu) % kAlignment == 0 &&
              sizeof(PackedConvChoice) % kAlignment == 0);

Error Refused(const std::string& why) { return {INTACT_INVALID_ARGUMENT, why}; }

// The offsets of the sections. They follow from the header's n, k, vectors, spatial_dims, choices
// and schedule_bytes.
struct Layout {
  int64_t weights, choices, schedules, end;
  std::array<int64_t, kCounts.column_vectors> vectors;  // if absent: the next section's offset
  int64_t lookup_table;
};

Layout LayoutOf(const PackHeader& header) {
  const PackedWeights weights(header.k, header.n);
  const int64_t panels = weights.panels();
  const int64_t column_bytes = RoundUp(panels * kPanelColumns * 4, kAlignment);
  Layout layout{};
  layout.weights = RoundUp(sizeof(PackHeader), kAlignment);
  int64_t end = layout.weights + weights.bytes();
  for (size_t i = 0; i < kCounts.column_vectors; ++i) {
    layout.vectors[i] = end;
    if ((header.vectors >> i & 1) != 0) end += column_bytes;
  }
  layout.lookup_table = end;
  if (HasLookupTable(header)) end += core::kTableElements;
  layout.choices = end;
  if (header.choices != 0) {
    const size_t bytes = header.spatial_dims == 0 ? sizeof(PackedChoice) : sizeof(PackedConvChoice);
    end += static_cast<int64_t>(sizeof(PackedCpu) + header.choices * bytes);
  }
  layout.schedules = end;
  layout.end = end + RoundUp(header.schedule_bytes, kAlignment);
  return layout;
}

bool IsWithin(int64_t value, int64_t low, int64_t high) { return value >= low && value <= high; }

// Checks the fields that the sections' offsets follow from.
Error CheckShape(const PackHeader& header) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (!IsWithin(header.n, 1, kMost) || !IsWithin(header.k, 1, kMost) ||
      header.n > (int64_t{1} << 40) / header.k) {
    return Refused("n or k is out of range");
  }
  if ((header.vectors & ~kTableBit) >> kCounts.column_vectors != 0) return Refused("a flag is out of range");
  const auto is_0_from = [](const auto& words, size_t begin) {
    return std::all_of(words.begin() + static_cast<ptrdiff_t>(begin), words.end(),
                       [](uint32_t word) { return word == 0; });
  };
  if (!is_0_from(header.numbers, kCounts.numbers) || !is_0_from(header.post_ops, kCounts.post_ops)) {
    return Refused("a number that this version does not know is not 0");
  }
  const std::array<std::array<int64_t, INTACT_MAX_SPATIAL>, 7> extents = {
      header.input,     header.kernel,  header.stride,    header.dilation,
      header.pad_begin, header.pad_end, header.output_pad};
  const bool has_geometry = header.transposed != 0 || header.input_channels != 0 ||
                            header.output_channels != 0 || header.groups != 0 ||
                            extents != decltype(extents){};
  if (header.spatial_dims == 0 && has_geometry) return Refused("a GEMM has a convolution's geometry");
  if (!IsWithin(header.usual_m, 0, header.spatial_dims == 0 ? kMost : 0)) {
    return Refused("usual_m is out of range");
  }
  // Each schedule takes at least a PackedSchedule.
  constexpr int64_t kMostBytes = int64_t{1} << 42;
  if (!IsWithin(header.schedule_bytes, 0, kMostBytes) ||
      !IsWithin(header.schedules, 0, header.schedule_bytes / static_cast<int64_t>(sizeof(PackedSchedule)))) {
    return Refused("schedules or schedule_bytes is out of range");
  }
  return {};
}

// Columns and depths beyond n and k must be zero: sums over whole quads and panels rely on it.
bool IsPaddingZero(const PackedWeights& weights) {
  const auto is_zero = [](const int8_t* begin, const int8_t* end) {
    return std::accumulate(begin, end, 0, [](int bits, int8_t weight) { return bits | weight; }) == 0;
  };
  const int8_t* const end = weights.data + weights.bytes();
  for (int64_t panel = 0; panel < weights.panels(); ++panel) {
    const int8_t* const begin = weights.Panel(panel);
    const int64_t columns = std::min<int64_t>(weights.n - panel * kPanelColumns, weights.width);
    for (int64_t column = 0; column < columns; ++column) {  // depths of the last quad
      const int8_t* const last =
          begin + OffsetInPanel((weights.quads() - 1) * kQuad, column, weights.quad_bytes());
      if (!is_zero(last + weights.k - (weights.quads() - 1) * kQuad, last + kQuad)) return false;
    }
    for (int64_t quad = 0; columns < weights.width && quad < weights.quads(); ++quad) {
      const int8_t* const of_quad = begin + quad * weights.quad_bytes();
      if (!is_zero(of_quad + columns * kQuad, of_quad + weights.quad_bytes())) return false;
    }
    const int8_t* const next = panel + 1 < weights.panels() ? weights.Panel(panel + 1) : end;
    if (!is_zero(begin + weights.quads() * weights.quad_bytes(), next)) return false;
  }
  return true;
}

void CopyTo(std::vector<uint8_t>* image, int64_t offset, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(image->data() + offset, from, bytes);
}

template <size_t size>
void CopyName(const std::string& name, std::array<char, size>* to) {
  to->fill(0);
  std::copy_n(name.begin(), std::min(name.size(), size - 1), to->begin());
}

// The name in `from`; nothing unless it ends with zeros.
template <size_t size>
std::optional<std::string> NameOf(const std::array<char, size>& from) {
  const auto end = std::find(from.begin(), from.end(), '\0');
  const bool is_name = end != from.end() && std::all_of(end, from.end(), [](char c) { return c == '\0'; });
  return is_name ? std::optional<std::string>(std::in_place, from.begin(), end) : std::nullopt;
}

std::string ErrnoText() { return std::strerror(errno); }  // NOLINT(concurrency-mt-unsafe)

void CopyChoices(const TunedChoices& tuned, bool is_conv, const Layout& layout, std::vector<uint8_t>* image) {
  int64_t offset = layout.choices;
  const auto add = [&](const auto& packed) {
    CopyTo(image, offset, &packed, sizeof(packed));
    offset += static_cast<int64_t>(sizeof(packed));
  };
  PackedCpu cpu;
  CopyName(tuned.cpu, &cpu.name);
  add(cpu);
  if (is_conv) {
    for (const TunedChoices::ConvChoice& choice : tuned.conv_choices) {
      PackedConvChoice packed{choice.input, choice.phase, {}, {}};
      CopyName(choice.variant, &packed.variant);
      CopyName(choice.kernel, &packed.kernel);
      add(packed);
    }
    return;
  }
  for (const TunedChoices::Choice& choice : tuned.choices) {
    PackedChoice packed{choice.m, {}};
    CopyName(choice.kernel, &packed.kernel);
    add(packed);
  }
}

int64_t BytesOf(const SavedSchedule& schedule) {
  return static_cast<int64_t>(sizeof(PackedSchedule)) + RoundUp(schedule.record.order_bytes, 8);
}

void CopySchedules(std::span<const SavedSchedule> schedules, int64_t offset, std::vector<uint8_t>* image) {
  for (const SavedSchedule& schedule : schedules) {
    const ScheduleRecord& record = schedule.record;
    PackedSchedule packed{schedule.phase,
                          schedule.unit,
                          {},
                          record.key,
                          record.estimate.quads,
                          record.estimate.items,
                          record.estimate.groups,
                          record.order_bytes};
    CopyName(schedule.layout, &packed.layout);
    CopyTo(image, offset, &packed, sizeof(packed));
    CopyTo(image, offset + static_cast<int64_t>(sizeof(packed)), record.order.data(), record.order.size());
    offset += BytesOf(schedule);
  }
}

std::vector<const void*> VectorsOf(const intact_linear_desc& linear) {
  std::vector<const void*> vectors;
  core::ForEachColumnVector([&vectors](auto, const auto* values) { vectors.push_back(values); }, linear);
  return vectors;
}

// Without the checksum.
PackHeader HeaderOf(const intact_linear_desc& linear, const std::optional<intact_conv_desc>& conv,
                    const PackedWeights& weights, int64_t usual_m, const TunedChoices& tuned,
                    std::span<const SavedSchedule> schedules) {
  PackHeader header{};
  header.begin = kBegin;
  header.n = weights.n;
  header.k = weights.k;
  core::ForEachScalar(WriteBits(&header.numbers), linear);
  core::ForEachPostOpField(WriteBits(&header.post_ops), linear);
  const std::vector<const void*> vectors = VectorsOf(linear);
  for (size_t i = 0; i < vectors.size(); ++i) header.vectors |= (vectors[i] != nullptr ? 1u : 0u) << i;
  if (linear.lookup_table != nullptr) header.vectors |= kTableBit;
  if (conv) core::ForEachGeometryField(core::kCopyField, header, *conv);
  header.usual_m = usual_m;
  header.choices = static_cast<uint32_t>(conv ? tuned.conv_choices.size() : tuned.choices.size());
  header.schedules = std::ssize(schedules);
  for (const SavedSchedule& schedule : schedules) header.schedule_bytes += BytesOf(schedule);
  header.begin.file_bytes = static_cast<uint64_t>(LayoutOf(header).end);
  return header;
}

}  // namespace

size_t PackImageBytes(const LinearProblem& problem, const std::optional<intact_conv_desc>& conv,
                      const PackedWeights& weights, int64_t usual_m, const TunedChoices& tuned,
                      std::span<const SavedSchedule> schedules) {
  std::vector<int32_t> b_zero_points;
  const intact_linear_desc linear = DescOf(problem, &b_zero_points);
  return HeaderOf(linear, conv, weights, usual_m, tuned, schedules).begin.file_bytes;
}

std::vector<uint8_t> WritePackImage(const LinearProblem& problem, const std::optional<intact_conv_desc>& conv,
                                    const PackedWeights& weights, int64_t usual_m, const TunedChoices& tuned,
                                    std::span<const SavedSchedule> schedules) {
  std::vector<int32_t> b_zero_points;
  const intact_linear_desc linear = DescOf(problem, &b_zero_points);
  PackHeader header = HeaderOf(linear, conv, weights, usual_m, tuned, schedules);
  const std::vector<const void*> vectors = VectorsOf(linear);
  const Layout layout = LayoutOf(header);
  std::vector<uint8_t> image(static_cast<size_t>(layout.end));
  CopyTo(&image, layout.weights, weights.data, static_cast<size_t>(weights.bytes()));
  const auto column_bytes = static_cast<size_t>(weights.panels() * kPanelColumns * 4);
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (vectors[i] != nullptr) CopyTo(&image, layout.vectors[i], vectors[i], column_bytes);
  }
  CopyTo(&image, layout.lookup_table, linear.lookup_table, problem.lookup_table.size());
  if (header.choices != 0) CopyChoices(tuned, conv.has_value(), layout, &image);
  CopySchedules(schedules, layout.schedules, &image);
  CopyTo(&image, 0, &header, sizeof(header));
  header.begin.checksum = ImageChecksum(image.data(), image.size());
  CopyTo(&image, 0, &header, sizeof(header));
  return image;
}

namespace {

intact_linear_desc LinearOf(const PackHeader& header, const Layout& layout, const uint8_t* image) {
  intact_linear_desc linear = INTACT_LINEAR_DESC_INIT;
  core::ForEachScalar(ReadBits(header.numbers), linear);
  core::ForEachPostOpField(ReadBits(header.post_ops), linear);
  size_t i = 0;
  const auto point = [&](auto, auto& values) {
    if ((header.vectors >> i & 1) != 0) {
      const void* const section = image + layout.vectors[i];
      values = static_cast<std::remove_reference_t<decltype(values)>>(section);
    }
    ++i;
  };
  core::ForEachColumnVector(point, linear);
  if (HasLookupTable(header)) linear.lookup_table = image + layout.lookup_table;
  if (linear.b_zero_points != nullptr) linear.b_zero_point_count = header.n;
  if (linear.c_type != INTACT_S32) linear.scale_count = header.n;
  return linear;
}

std::optional<intact_conv_desc> ConvOf(const PackHeader& header) {
  if (header.spatial_dims == 0) return std::nullopt;
  intact_conv_desc conv = INTACT_CONV_DESC_INIT;
  core::ForEachGeometryField(core::kCopyField, conv, header);
  return conv;
}

bool IsExtent(int64_t value) { return IsWithin(value, 1, std::numeric_limits<int32_t>::max()); }

// The choice in `packed`. Nothing if it is malformed or not beyond `last`, which is null for the first
// choice.
std::optional<TunedChoices::Choice> ChoiceOf(const PackedChoice& packed, const TunedChoices::Choice* last) {
  const std::optional<std::string> kernel = NameOf(packed.kernel);
  if (!kernel || !IsExtent(packed.m) || (last != nullptr && packed.m <= last->m)) return std::nullopt;
  return TunedChoices::Choice{packed.m, *kernel};
}

std::optional<TunedChoices::ConvChoice> ChoiceOf(const PackedConvChoice& packed,
                                                 const TunedChoices::ConvChoice* last) {
  const std::optional<std::string> variant = NameOf(packed.variant);
  const std::optional<std::string> kernel = NameOf(packed.kernel);
  if (!variant || !kernel || !std::all_of(packed.input.begin(), packed.input.end(), IsExtent) ||
      !IsWithin(packed.phase, 0, std::numeric_limits<int32_t>::max())) {
    return std::nullopt;
  }
  const auto place = [](const auto& choice) { return std::pair(choice.input, choice.phase); };
  if (last != nullptr && place(packed) <= place(*last)) return std::nullopt;
  return TunedChoices::ConvChoice{packed.input, packed.phase, *variant, *kernel};
}

// Reads `count` choices at `at`. False if one is malformed.
template <class Packed, class Choice>
bool ReadChoices(const uint8_t* at, uint32_t count, std::vector<Choice>* choices) {
  for (uint32_t i = 0; i < count; ++i, at += sizeof(Packed)) {
    Packed packed;
    std::memcpy(&packed, at, sizeof(packed));
    std::optional<Choice> choice = ChoiceOf(packed, choices->empty() ? nullptr : &choices->back());
    if (!choice) return false;
    choices->push_back(std::move(*choice));
  }
  return true;
}

// Checks the format only: the plan checks that variants and kernels exist.
Result<TunedChoices> ChoicesOf(const PackHeader& header, const Layout& layout, const uint8_t* image) {
  TunedChoices tuned;
  if (header.choices == 0) return tuned;
  PackedCpu cpu;
  std::memcpy(&cpu, image + layout.choices, sizeof(cpu));
  const std::optional<std::string> name = NameOf(cpu.name);
  const uint8_t* const at = image + layout.choices + sizeof(cpu);
  const bool makes_sense =
      name &&
      (header.spatial_dims == 0 ? ReadChoices<PackedChoice>(at, header.choices, &tuned.choices)
                                : ReadChoices<PackedConvChoice>(at, header.choices, &tuned.conv_choices));
  if (!makes_sense) return Refused("corrupted: a tuned choice makes no sense");
  tuned.cpu = *name;
  return tuned;
}

// Checks the format only: orders are checked when they are used.
Result<std::vector<SavedSchedule>> SchedulesOf(const PackHeader& header, const Layout& layout,
                                               const uint8_t* image) {
  constexpr int64_t kMost = int64_t{1} << 50;
  const Error malformed = Refused("corrupted: the description of a schedule makes no sense");
  std::vector<SavedSchedule> schedules;
  const uint8_t* at = image + layout.schedules;
  int64_t left = header.schedule_bytes;
  for (int64_t i = 0; i < header.schedules; ++i) {
    PackedSchedule packed;
    if (left < static_cast<int64_t>(sizeof(packed))) return malformed;
    std::memcpy(&packed, at, sizeof(packed));
    const std::optional<std::string> name = NameOf(packed.layout);
    if (!name || packed.phase < 0 || packed.unit < 0 || !IsWithin(packed.quads, 0, kMost) ||
        !IsWithin(packed.items, 0, kMost) || !IsWithin(packed.groups, 0, packed.items) ||
        !IsWithin(packed.order_bytes, 0, left - static_cast<int64_t>(sizeof(packed)))) {
      return malformed;
    }
    SavedSchedule& schedule = schedules.emplace_back();
    schedule.phase = packed.phase;
    schedule.layout = *name;
    schedule.unit = packed.unit;
    schedule.record.key = packed.key;
    schedule.record.estimate = {packed.quads, packed.items, packed.groups};
    schedule.record.order_bytes = packed.order_bytes;
    schedule.record.order = {at + sizeof(packed), static_cast<size_t>(packed.order_bytes)};
    at += BytesOf(schedule);
    left -= BytesOf(schedule);
  }
  if (left != 0) return malformed;
  return schedules;
}

}  // namespace

uint64_t ImageChecksum(const uint8_t* image, size_t size) {
  constexpr uint64_t kStart = 0x9e3779b97f4a7c15u;
  const auto add = [](uint64_t word, uint64_t* hash) {
    *hash = std::rotl(*hash ^ word, 29) * 0xff51afd7ed558ccdu;
  };
  const auto word_at = [image](size_t at) {
    uint64_t word = 0;
    std::memcpy(&word, image + at, sizeof(word));
    return word;
  };
  std::array<uint64_t, 4> lanes;  // the steps of different lanes overlap in the CPU
  lanes.fill(kStart);
  size_t at = sizeof(ImageBegin);
  for (; at + sizeof(lanes) <= size; at += sizeof(lanes)) {
    for (size_t i = 0; i < lanes.size(); ++i) add(word_at(at + 8 * i), &lanes[i]);
  }
  for (size_t i = 0; at + 8 <= size; ++i, at += 8) add(word_at(at), &lanes[i]);
  uint64_t hash = kStart;
  for (const uint64_t lane : lanes) add(lane, &hash);
  return hash;
}

Error CheckImage(const void* image, size_t size, const ImageBegin& expected, const char* what) {
  ImageBegin begin{};
  std::memcpy(&begin, image, std::min(size, sizeof(begin)));
  if (begin.magic != expected.magic && begin.magic == kGroupedMagic) {
    return Refused(std::string("it holds grouped weights; expected ") + what + " (use intact_grouped_load)");
  }
  if (begin.magic != expected.magic && begin.magic == kPackMagic) {
    return Refused(std::string("it holds a GEMM or a convolution; expected ") + what +
                   " (use intact_gemm_load or intact_conv_load)");
  }
  if (size < expected.header_bytes) {
    return Refused("truncated: " + std::to_string(size) + " bytes, fewer than a header's " +
                   std::to_string(expected.header_bytes));
  }
  if (begin.magic != expected.magic) return Refused(std::string("not ") + what);
  if (begin.version != expected.version || begin.header_bytes != expected.header_bytes) {
    return Refused("format version " + std::to_string(begin.version) + "; expected " +
                   std::to_string(expected.version));
  }
  if (begin.file_bytes != size) {
    return Refused((size < begin.file_bytes ? "truncated: " : "too long: ") + std::to_string(size) +
                   " bytes; expected " + std::to_string(begin.file_bytes));
  }
  if (size % 8 != 0 || begin.checksum != ImageChecksum(static_cast<const uint8_t*>(image), size)) {
    return Refused("corrupted: the checksum differs");
  }
  return {};
}

Result<PackContents> ReadPackImage(const void* image, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(image);
  RETURN_IF_ERROR(CheckImage(image, size, kBegin, "a pack file of intact"));
  PackHeader header{};
  std::memcpy(&header, bytes, sizeof(header));
  RETURN_IF_ERROR(CheckShape(header));
  const Layout layout = LayoutOf(header);
  if (layout.end != static_cast<int64_t>(size)) return Refused("corrupted: the size does not match n and k");

  PackContents contents;
  contents.conv = ConvOf(header);
  contents.linear = LinearOf(header, layout, bytes);
  contents.weights = PackedWeights(header.k, header.n);
  contents.weights.data = reinterpret_cast<const int8_t*>(bytes + layout.weights);
  if (!IsPaddingZero(contents.weights)) return Refused("corrupted: the padding of the weights is not zero");
  ASSIGN_OR_RETURN(contents.tuned, ChoicesOf(header, layout, bytes));
  ASSIGN_OR_RETURN(contents.schedules, SchedulesOf(header, layout, bytes));
  contents.usual_m = header.usual_m;
  return contents;
}

Result<MappedFile> MapFile(const std::string& path) {
  const auto failed = [&] {
    const bool is_memory = errno == ENOMEM;
    Error error = Refused("path '" + path + "' cannot be read: " + ErrnoText());
    if (is_memory) error.status = INTACT_OUT_OF_MEMORY;  // the file may be valid
    return error;
  };
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return failed();
  struct stat status {};
  void* data = MAP_FAILED;
  if (fstat(descriptor, &status) == 0) {
    if (!S_ISREG(status.st_mode) || status.st_size == 0) {
      close(descriptor);
      return Refused("path '" + path + "' is " + (S_ISREG(status.st_mode) ? "empty" : "not a file"));
    }
    data = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  const Error error = failed();
  close(descriptor);
  if (data == MAP_FAILED) return error;
  const auto size = static_cast<size_t>(status.st_size);
  return MappedFile{
      std::shared_ptr<const void>(data, [size](const void* d) { munmap(const_cast<void*>(d), size); }), size};
}

}  // namespace intact::kernels
