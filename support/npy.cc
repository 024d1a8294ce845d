#include "support/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/result.h"
#include "core/types.h"

namespace intact::support {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in the file");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxDimensions = 64;  // NumPy's limit; the work for an element grows with it

// The entry of a NumPy element type in this machine's byte order: "<f4", "|u1".
const core::ElementType* FindElementType(std::string_view descr) {
  for (const core::ElementType& known : core::kElementTypes) {
    const bool order_is_ours = descr.starts_with('<') || (known.bits == 8 && descr.starts_with('|'));
    if (order_is_ours && !known.npy.empty() && descr.substr(1) == known.npy) return &known;
  }
  return nullptr;
}

/// The fields of the header's dict; nullopt if a field is missing or wrong.
struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

/// Parses the one dict that NumPy writes: {'descr': '|i1', 'fortran_order': False, 'shape': (160, 512), }
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  /// Nothing if the text is not a dict like this, with each key once.
  std::optional<Header> Parse() {
    Header header;
    if (!Take("{")) return std::nullopt;
    while (!Take("}")) {
      if (!ParseEntry(&header)) return std::nullopt;
      if (!Take(",")) {
        if (!Take("}")) return std::nullopt;
        break;
      }
    }
    SkipSpace();
    if (!rest_.empty() || !header.descr || !header.fortran_order || !header.shape) return std::nullopt;
    return header;
  }

 private:
  bool ParseEntry(Header* header) {
    const std::optional<std::string> key = ParseString();
    if (!key || !Take(":")) return false;
    if (*key == "descr" && !header->descr) return (header->descr = ParseString()).has_value();
    if (*key == "fortran_order" && !header->fortran_order) {
      return (header->fortran_order = ParseBool()).has_value();
    }
    if (*key == "shape" && !header->shape) return (header->shape = ParseShape()).has_value();
    return false;
  }

  std::optional<std::string> ParseString() {
    SkipSpace();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string value(rest_.substr(1, end - 1));
    if (std::ranges::any_of(value, [](char c) { return c < ' ' || c > '~'; })) return std::nullopt;
    rest_.remove_prefix(end + 1);
    return value;
  }

  std::optional<bool> ParseBool() {
    if (Take("True")) return true;
    if (Take("False")) return false;
    return std::nullopt;
  }

  std::optional<std::vector<int64_t>> ParseShape() {
    std::vector<int64_t> shape;
    if (!Take("(")) return std::nullopt;
    while (!Take(")")) {
      SkipSpace();
      int64_t value = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc()) return std::nullopt;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      shape.push_back(value);
      if (!Take(",")) {
        if (!Take(")")) return std::nullopt;
        break;
      }
    }
    return shape;
  }

  bool Take(std::string_view token) {
    SkipSpace();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  void SkipSpace() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }

  std::string_view rest_;
};

Error BadFile(const std::string& path, std::string_view what) {
  return {INTACT_INVALID_ARGUMENT, fmt::format("{}: {}", path, what)};
}

/// The largest file that is read. A larger file could use up the memory, and the process would end.
uintmax_t MostBytes() {
  const auto pages = static_cast<uintmax_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
  return pages * static_cast<uintmax_t>(sysconf(_SC_PAGESIZE)) / 2;  // Fortran order is copied
}

/// The part of a file before its elements.
struct Preamble {
  std::string_view header;
  size_t size = 0;  // bytes before the first element
};

Result<Preamble> FindHeader(const std::string& path, std::string_view file) {
  const size_t length_at = kMagic.size() + 2;
  if (!file.starts_with(kMagic.substr(0, file.size())) || file.empty()) {
    return BadFile(path, "is not a .npy file (it does not begin with \\x93NUMPY)");
  }
  if (file.size() < length_at) return BadFile(path, "is truncated within the .npy preamble");
  const int major = static_cast<uint8_t>(file[kMagic.size()]);
  const int minor = static_cast<uint8_t>(file[kMagic.size() + 1]);
  if ((major != 1 && major != 2) || minor != 0) {
    return BadFile(path, fmt::format("has .npy version {}.{}; expected 1.0 or 2.0", major, minor));
  }
  const size_t length_size = major == 1 ? 2 : 4;
  if (file.size() < length_at + length_size) return BadFile(path, "is truncated within the .npy preamble");
  size_t length = 0;
  std::memcpy(&length, file.data() + length_at, length_size);
  const size_t header_at = length_at + length_size;
  if (file.size() - header_at < length) {
    return BadFile(path, fmt::format("is truncated: its header should have {} bytes, but only {} are there",
                                     length, file.size() - header_at));
  }
  return Preamble{file.substr(header_at, length), header_at + length};
}

/// Elements in `shape`, or nothing if a dimension is not positive or the bytes would not fit into a size.
std::optional<size_t> ElementCount(const std::vector<int64_t>& shape, size_t element_size) {
  size_t bytes = element_size;
  for (const int64_t dimension : shape) {
    if (dimension < 1 || __builtin_mul_overflow(bytes, static_cast<size_t>(dimension), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes / element_size;
}

/// All bytes that are written into the pipe until its writers close it.
Result<std::vector<uint8_t>> ReadPipe(const std::string& path, std::ifstream* stream) {
  const uintmax_t most = MostBytes() / 2;  // the vector is copied as it grows
  std::vector<uint8_t> bytes;
  std::vector<char> part(size_t{1} << 16);
  while (bytes.size() <= most) {
    stream->read(part.data(), std::ssize(part));
    bytes.insert(bytes.end(), part.begin(), part.begin() + stream->gcount());
    if (stream->eof()) return bytes;
    if (!*stream) return BadFile(path, "cannot be read");
  }
  return BadFile(path, fmt::format("has more than {} bytes, a quarter of this machine's memory", most));
}

/// Reorders elements of `size` bytes from Fortran order (first index fastest) to C order (last fastest).
std::vector<uint8_t> ToRowMajor(const std::vector<uint8_t>& elements, const std::vector<int64_t>& shape,
                                size_t size) {
  std::vector<size_t> strides;
  size_t stride = size;
  for (const int64_t extent : shape) {
    strides.push_back(stride);
    stride *= static_cast<size_t>(extent);
  }
  std::vector<uint8_t> row_major(elements.size());
  std::vector<int64_t> index(shape.size());
  size_t from = 0;
  for (size_t to = 0; to < elements.size(); to += size) {
    std::memcpy(&row_major[to], &elements[from], size);
    for (size_t i = shape.size(); i-- > 0;) {
      from += strides[i];
      if (++index[i] < shape[i]) break;
      from -= strides[i] * static_cast<size_t>(shape[i]);
      index[i] = 0;
    }
  }
  return row_major;
}

}  // namespace

std::string ShapeString(const std::vector<int64_t>& shape) {
  return shape.size() == 1 ? fmt::format("({},)", shape[0]) : fmt::format("({})", fmt::join(shape, ", "));
}

Result<std::vector<uint8_t>> ReadFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return BadFile(path, "no such file");
  const bool is_pipe = std::filesystem::is_fifo(status);
  if (!is_pipe && !std::filesystem::is_regular_file(status)) {
    return BadFile(path, "is neither a regular file nor a pipe");
  }
  const uintmax_t size = is_pipe ? 0 : std::filesystem::file_size(path, error);
  std::ifstream stream(path, std::ios::binary);
  if (error || !stream) return BadFile(path, "cannot be opened for reading");
  if (is_pipe) return ReadPipe(path, &stream);
  if (size > MostBytes()) {
    return BadFile(path, fmt::format("has {} bytes; at most {}, half of this machine's memory, are read",
                                     size, MostBytes()));
  }
  std::vector<uint8_t> bytes(size);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (stream.gcount() != static_cast<std::streamsize>(bytes.size())) return BadFile(path, "cannot be read");
  return bytes;
}

Result<NpyArray> ReadNpy(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<uint8_t> file, ReadFile(path));
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  ASSIGN_OR_RETURN(const Preamble preamble, FindHeader(path, text));

  const std::optional<Header> header = HeaderParser(preamble.header).Parse();
  if (!header) {
    return BadFile(path,
                   "has a malformed .npy header; expected a dict of 'descr', 'fortran_order' and 'shape'");
  }
  const core::ElementType* const element = FindElementType(*header->descr);
  if (element == nullptr) {
    return BadFile(path,
                   fmt::format("holds elements of type '{}'; expected '|u1', '|i1', '<i4', '<f4' or '<f2'",
                               *header->descr));
  }
  if (header->shape->size() > kMaxDimensions) {
    return BadFile(path, fmt::format("has {} dimensions; expected at most {}, as NumPy",
                                     header->shape->size(), kMaxDimensions));
  }
  const auto element_bytes = static_cast<size_t>(element->bytes());
  const std::optional<size_t> count = ElementCount(*header->shape, element_bytes);
  if (!count) {
    return BadFile(
        path, fmt::format("has the invalid shape {}; expected dimensions of at least 1 that fit into memory",
                          ShapeString(*header->shape)));
  }
  const size_t expected = *count * element_bytes;
  const size_t present = file.size() - preamble.size;
  if (present != expected) {
    return BadFile(path, fmt::format("{}: shape {} of '{}' takes {} bytes, but {} are there",
                                     present < expected ? "is truncated" : "has trailing bytes",
                                     ShapeString(*header->shape), *header->descr, expected, present));
  }
  file.erase(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(preamble.size));
  if (*header->fortran_order) file = ToRowMajor(file, *header->shape, element_bytes);
  return NpyArray{element->type, *header->shape, std::move(file)};
}

}  // namespace intact::support
