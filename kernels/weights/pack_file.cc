#include "kernels/weights/pack_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

namespace intact::kernels {
namespace {

constexpr std::array<char, 8> kMagic = {'I', 'N', 'T', 'A', 'C', 'T', 'P', 'K'};
constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 64;

struct PackHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  uint64_t checksum;  // of all that follows
  int64_t n, k;
  uint32_t a_type, b_type, c_type, mode;
  uint32_t has_bias_f32, has_bias_s32, is_range_checked;
  int32_t a_zero_point, c_zero_point;
  int32_t range_low, range_high;  // as kernels see activations
  float lo, hi;                   // bounds of the activation function, see epilogue.h
  uint32_t has_b_zero_points;
  int64_t pairs, failing_pairs, worst_column, worst_column_failing_pairs;
  uint32_t residual_type;
  float residual_scale;
  int32_t residual_zero_point;
  uint32_t reserved;  // 0
};
static_assert(std::is_trivially_copyable_v<PackHeader> && sizeof(PackHeader) % 8 == 0);
static_assert(std::endian::native == std::endian::little);

Error Refused(const std::string& why) { return {INTACT_INVALID_ARGUMENT, why}; }

// Where the sections lie; all of it follows from the header's n, k, c_type and flags.
struct Layout {
  int64_t weights, scales, bias_f32, bias_s32, b_zero_points, panels, end;
};

Layout LayoutOf(const PackHeader& header) {
  const int64_t panels = (header.n + kPanelColumns - 1) / kPanelColumns;
  const int64_t column_bytes = RoundUp(panels * kPanelColumns * 4, kAlignment);
  Layout layout{};
  layout.weights = RoundUp(sizeof(PackHeader), kAlignment);
  layout.scales = layout.weights + panels * RoundUp(header.k, 64) * kPanelColumns;
  layout.bias_f32 = layout.scales + (header.c_type == INTACT_S32 ? 0 : column_bytes);
  layout.bias_s32 = layout.bias_f32 + (header.has_bias_f32 != 0 ? column_bytes : 0);
  layout.b_zero_points = layout.bias_s32 + (header.has_bias_s32 != 0 ? column_bytes : 0);
  layout.panels = layout.b_zero_points + (header.has_b_zero_points != 0 ? column_bytes : 0);
  layout.end = layout.panels + RoundUp(panels * static_cast<int64_t>(sizeof(int64_t)), kAlignment);
  return layout;
}

uint64_t Checksum(const uint8_t* image, size_t size) {
  constexpr size_t kBegin = offsetof(PackHeader, checksum) + sizeof(uint64_t);
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (size_t i = kBegin; i + 8 <= size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, image + i, sizeof(word));
    hash = std::rotl(hash ^ word, 29) * 0xff51afd7ed558ccdu;
  }
  return hash;
}

bool IsOneOf(uint32_t value, std::initializer_list<uint32_t> values) {
  for (const uint32_t v : values) {
    if (v == value) return true;
  }
  return false;
}

bool IsWithin(int64_t value, int64_t low, int64_t high) { return value >= low && value <= high; }

Error CheckResidualFields(const PackHeader& header) {
  if (!IsOneOf(header.residual_type, {INTACT_TYPE_NONE, INTACT_U8, INTACT_S8, INTACT_F32}) ||
      (header.c_type == INTACT_S32 && header.residual_type != INTACT_TYPE_NONE)) {
    return Refused("the residual's type is unknown, or not for this output");
  }
  const bool has_residual = header.residual_type != INTACT_TYPE_NONE;
  const float scale = header.residual_scale;
  if (has_residual ? !(scale > 0.0f) || !std::isfinite(scale) : scale != 0.0f) {
    return Refused("the residual's scale is " + std::to_string(scale));
  }
  const int low = header.residual_type == INTACT_S8 ? -128 : 0;
  const int high = header.residual_type == INTACT_S8 ? 127 : header.residual_type == INTACT_U8 ? 255 : 0;
  if (!IsWithin(header.residual_zero_point, low, high)) {
    return Refused("the residual's zero point is out of range");
  }
  if (header.reserved != 0) return Refused("a reserved field is not zero");
  return {};
}

// The fields' values; the checksum has vouched that they are as written, this that a writer may write them.
Error CheckFields(const PackHeader& header) {
  if (!IsWithin(header.n, 1, std::numeric_limits<int32_t>::max()) ||
      !IsWithin(header.k, 1, std::numeric_limits<int32_t>::max())) {
    return Refused("n or k is out of range");
  }
  if (!IsOneOf(header.a_type, {INTACT_U8, INTACT_S8}) || !IsOneOf(header.b_type, {INTACT_U8, INTACT_S8}) ||
      !IsOneOf(header.c_type, {INTACT_U8, INTACT_S8, INTACT_S32, INTACT_F32})) {
    return Refused("a type is unknown");
  }
  if (!IsOneOf(header.mode, {INTACT_EXACT, INTACT_SATURATING})) return Refused("the mode is unknown");
  if (!IsOneOf(header.has_bias_f32, {0, 1}) || !IsOneOf(header.has_bias_s32, {0, 1}) ||
      !IsOneOf(header.is_range_checked, {0, 1}) || !IsOneOf(header.has_b_zero_points, {0, 1}) ||
      (header.c_type == INTACT_S32 && header.has_bias_f32 != 0)) {
    return Refused("a flag is out of range");
  }
  const int64_t shift = header.a_type == INTACT_S8 ? 128 : 0;
  if (!IsWithin(header.range_low, 0, header.range_high) || header.range_high > 255 ||
      !IsWithin(header.a_zero_point + shift, header.range_low, header.range_high)) {
    return Refused("the activations' range or zero point is out of range");
  }
  const int c_low = header.c_type == INTACT_S8 ? -128 : 0;
  const int c_high = header.c_type == INTACT_S8 ? 127 : header.c_type == INTACT_U8 ? 255 : 0;
  if (!IsWithin(header.c_zero_point, c_low, c_high))
    return Refused("the output's zero point is out of range");
  // The epilogue relies on 8-bit outputs' bounds lying within the type.
  const bool is_8bit = header.c_type == INTACT_U8 || header.c_type == INTACT_S8;
  const float infinity = std::numeric_limits<float>::infinity();
  const float lowest = is_8bit ? static_cast<float>(c_low - header.c_zero_point) : -infinity;
  const float highest = is_8bit ? static_cast<float>(c_high - header.c_zero_point) : infinity;
  const bool is_ordered = lowest <= header.lo && header.lo <= header.hi && header.hi <= highest;
  if (!is_ordered) return Refused("the output's bounds are out of range");
  return CheckResidualFields(header);
}

// Columns and depths beyond n and k must be zero: sums over whole quads and panels rely on it.
bool IsPaddingZero(const PackedWeights& weights) {
  for (int64_t n = 0; n < weights.panels() * kPanelColumns; ++n) {
    const int64_t begin = n < weights.n ? weights.k : 0;
    for (int64_t k = begin; k < RoundUp(weights.k, 64); ++k) {
      if (weights.At(k, n) != 0) return false;
    }
  }
  return true;
}

template <class T>
Error ReadColumns(const uint8_t* from, int64_t count, AlignedBuffer<T>* to) {
  if (!to->Resize(static_cast<size_t>(count))) return {INTACT_OUT_OF_MEMORY, "no memory for the epilogue"};
  std::memcpy(to->data(), from, to->bytes());
  return {};
}

// Values a plan's creation would have refused.
Error CheckFloats(const AlignedBuffer<float>& values, bool must_be_positive, const char* name) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || (must_be_positive && !(values[i] > 0.0f))) {
      return Refused(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(values[i]));
    }
  }
  return {};
}

Error CheckZeroPoints(const AlignedBuffer<int32_t>& zero_points) {
  for (size_t i = 0; i < zero_points.size(); ++i) {
    if (!IsWithin(zero_points[i], -128, 127)) {
      return Refused("b_zero_points[" + std::to_string(i) + "] is " + std::to_string(zero_points[i]) +
                     " as kernels see it");
    }
  }
  return {};
}

// Whether the file tells what the weights' certificate says.
bool HoldsCertificate(const PackHeader& header, const uint8_t* panels, const Certificate& certificate) {
  return header.pairs == certificate.pairs && header.failing_pairs == certificate.failing_pairs &&
         header.worst_column == certificate.worst_column &&
         header.worst_column_failing_pairs == certificate.worst_column_failing_pairs &&
         std::memcmp(panels, certificate.panel_failing_pairs.data(),
                     certificate.panel_failing_pairs.size() * sizeof(int64_t)) == 0;
}

void CopyTo(std::vector<uint8_t>* image, int64_t offset, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(image->data() + offset, from, bytes);
}

std::string ErrnoText() { return std::strerror(errno); }  // NOLINT(concurrency-mt-unsafe)

}  // namespace

std::vector<uint8_t> WritePackImage(const GemmData& data) {
  PackHeader header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.header_bytes = sizeof(PackHeader);
  header.n = data.n;
  header.k = data.k;
  header.a_type = data.a_type;
  header.b_type = data.b_type;
  header.c_type = data.epilogue.c_type;
  header.mode = data.mode;
  header.has_bias_f32 = data.epilogue.has_bias ? 1 : 0;
  header.has_bias_s32 = data.bias_s32.size() != 0 ? 1 : 0;
  header.has_b_zero_points = data.epilogue.has_b_zero_points ? 1 : 0;
  header.is_range_checked = data.is_range_checked ? 1 : 0;
  header.a_zero_point = data.a_zero_point;
  header.c_zero_point = data.bounds.zero_point;
  header.range_low = data.range.low;
  header.range_high = data.range.high;
  header.lo = data.bounds.lo;
  header.hi = data.bounds.hi;
  header.pairs = data.certificate.pairs;
  header.failing_pairs = data.certificate.failing_pairs;
  header.worst_column = data.certificate.worst_column;
  header.worst_column_failing_pairs = data.certificate.worst_column_failing_pairs;
  header.residual_type = data.epilogue.residual;
  header.residual_scale = data.residual.scale;
  header.residual_zero_point = data.residual.zero_point;
  const Layout layout = LayoutOf(header);
  header.file_bytes = static_cast<uint64_t>(layout.end);
  std::vector<uint8_t> image(static_cast<size_t>(layout.end));
  CopyTo(&image, layout.weights, data.weights.data, static_cast<size_t>(data.weights.bytes()));
  CopyTo(&image, layout.scales, data.scales.data(), data.scales.bytes());
  CopyTo(&image, layout.bias_f32, data.bias.data(), data.bias.bytes());
  CopyTo(&image, layout.bias_s32, data.bias_s32.data(), data.bias_s32.bytes());
  CopyTo(&image, layout.b_zero_points, data.b_zero_points.data(), data.b_zero_points.bytes());
  CopyTo(&image, layout.panels, data.certificate.panel_failing_pairs.data(),
         data.certificate.panel_failing_pairs.size() * sizeof(int64_t));
  CopyTo(&image, 0, &header, sizeof(header));
  header.checksum = Checksum(image.data(), image.size());
  CopyTo(&image, 0, &header, sizeof(header));
  return image;
}

Error ReadPackImage(const void* image, size_t size, GemmData* data) {
  const auto* bytes = static_cast<const uint8_t*>(image);
  PackHeader header{};
  if (size < sizeof(header)) {
    return Refused("truncated: " + std::to_string(size) + " bytes, fewer than a header's " +
                   std::to_string(sizeof(header)));
  }
  std::memcpy(&header, bytes, sizeof(header));
  if (header.magic != kMagic) return Refused("not a pack file of intact");
  if (header.version != kVersion || header.header_bytes != sizeof(header)) {
    return Refused("format version " + std::to_string(header.version) + "; expected " +
                   std::to_string(kVersion));
  }
  if (header.file_bytes != size) {
    return Refused((size < header.file_bytes ? "truncated: " : "too long: ") + std::to_string(size) +
                   " bytes; expected " + std::to_string(header.file_bytes));
  }
  if (size % 8 != 0 || header.checksum != Checksum(bytes, size))
    return Refused("corrupted: the checksum differs");
  Error error = CheckFields(header);
  if (error.status != INTACT_OK) return error;
  const Layout layout = LayoutOf(header);
  if (layout.end != static_cast<int64_t>(size)) return Refused("corrupted: the size does not match n and k");

  data->n = header.n;
  data->k = header.k;
  data->a_type = static_cast<intact_type>(header.a_type);
  data->b_type = static_cast<intact_type>(header.b_type);
  data->mode = static_cast<intact_mode>(header.mode);
  data->a_zero_point = header.a_zero_point;
  data->range = {header.range_low, header.range_high};
  data->is_range_checked = header.is_range_checked != 0;
  data->weights.n = header.n;
  data->weights.k = header.k;
  data->weights.data = reinterpret_cast<const int8_t*>(bytes + layout.weights);
  data->epilogue = {static_cast<intact_type>(header.c_type), header.has_bias_f32 != 0,
                    header.has_b_zero_points != 0, static_cast<intact_type>(header.residual_type)};
  data->bounds = {header.lo, header.hi, header.c_zero_point};
  data->residual = {header.residual_scale, header.residual_zero_point};
  const int64_t columns = data->weights.panels() * kPanelColumns;
  const bool has_scales = header.c_type != INTACT_S32;
  if (has_scales) error = ReadColumns(bytes + layout.scales, columns, &data->scales);
  if (error.status == INTACT_OK && data->epilogue.has_bias) {
    error = ReadColumns(bytes + layout.bias_f32, columns, &data->bias);
  }
  if (error.status == INTACT_OK && header.has_bias_s32 != 0) {
    error = ReadColumns(bytes + layout.bias_s32, columns, &data->bias_s32);
  }
  if (error.status == INTACT_OK && data->epilogue.has_b_zero_points) {
    error = ReadColumns(bytes + layout.b_zero_points, columns, &data->b_zero_points);
  }
  if (error.status == INTACT_OK) error = CheckFloats(data->scales, true, "scales");
  if (error.status == INTACT_OK) error = CheckFloats(data->bias, false, "bias_f32");
  if (error.status == INTACT_OK) error = CheckZeroPoints(data->b_zero_points);
  if (error.status != INTACT_OK) return error;

  if (!IsPaddingZero(data->weights)) return Refused("corrupted: the padding of the weights is not zero");
  data->certificate = Certify(data->weights, data->range);
  if (!HoldsCertificate(header, bytes + layout.panels, data->certificate)) {
    return Refused("corrupted: the certificate is not that of the weights");
  }
  return {};
}

Error WriteFile(const std::string& path, const std::vector<uint8_t>& image) {
  // A device's or a pipe's name would become the file's, and they would be gone.
  struct stat present {};
  if (stat(path.c_str(), &present) == 0 && !S_ISREG(present.st_mode)) {
    return Refused("path '" + path + "' cannot be written: it is there, and not a file");
  }
  std::string temporary = path + ".XXXXXX";
  const int descriptor = mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return Refused("path '" + path + "' cannot be written: " + ErrnoText());
  size_t written = 0;
  while (written < image.size()) {
    const ssize_t bytes = write(descriptor, image.data() + written, image.size() - written);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    written += static_cast<size_t>(bytes);
  }
  // mkostemp() gives the file to its owner alone; packs are to be read by others.
  const bool is_whole = written == image.size() && fchmod(descriptor, 0644) == 0 && fsync(descriptor) == 0;
  const std::string why = ErrnoText();
  if (close(descriptor) == 0 && is_whole && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  Error error = Refused("path '" + path + "' cannot be written: " + (is_whole ? ErrnoText() : why));
  std::remove(temporary.c_str());
  return error;
}

Result<MappedFile> MapFile(const std::string& path) {
  const auto failed = [&] { return Refused("path '" + path + "' cannot be read: " + ErrnoText()); };
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
