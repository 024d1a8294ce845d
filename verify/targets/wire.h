// Operations, options and answers as bytes, for another process of the same program: see isolated_target.h.
// Values follow each other as they are in memory; a vector or string follows its length.
#ifndef INTACT_VERIFY_TARGETS_WIRE_H_
#define INTACT_VERIFY_TARGETS_WIRE_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "reference/contract/operation.h"
#include "verify/problem/target.h"

namespace intact::verify {

/// Collects bytes.
class WireWriter {
 public:
  template <class T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    Append(&value, sizeof value);
  }
  template <class T>
  void operator()(const std::vector<T>& values) {
    (*this)(values.size());
    Append(values.data(), values.size() * sizeof(T));
  }
  void operator()(const std::string& text) {
    (*this)(text.size());
    Append(text.data(), text.size());
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  void Append(const void* data, size_t size) {
    const auto* begin = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::vector<uint8_t> bytes_;
};

/// Reads what a WireWriter wrote, in the same order. If bytes are missing for any reason, failed() is true.
class WireReader {
 public:
  explicit WireReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  template <class T>
  void operator()(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    Take(&value, sizeof value);
  }
  template <class T>
  void operator()(std::vector<T>& values) {
    values.resize(TakeCount(sizeof(T)));
    Take(values.data(), values.size() * sizeof(T));
  }
  void operator()(std::string& text) {
    text.resize(TakeCount(1));
    Take(text.data(), text.size());
  }
  bool failed() const { return failed_; }

 private:
  size_t TakeCount(size_t element_size) {
    size_t count = 0;
    (*this)(count);
    failed_ = failed_ || count > bytes_.size() / element_size;
    return failed_ ? 0 : count;
  }
  void Take(void* data, size_t size) {
    failed_ = failed_ || size > bytes_.size();
    if (failed_ || size == 0) return;
    std::memcpy(data, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }

  std::span<const uint8_t> bytes_;
  bool failed_ = false;
};

/// Passes all fields of `operation` to `archive`, a writer or a reader.
template <class Archive>
void ArchiveFields(Archive& archive, auto& operation) {
  std::visit(
      [&archive](auto& one) {
        reference::ForEachField([&archive](auto, auto& field) { archive(field); }, one);
      },
      operation);
}

inline void Write(const reference::Operation& operation, WireWriter* writer) {
  (*writer)(operation.index());
  ArchiveFields(*writer, operation);
}
inline reference::Operation ReadOperation(WireReader* reader) {
  size_t index = 0;
  (*reader)(index);
  reference::Operation operation;
  if (index == 1) operation.emplace<reference::Conv>();
  if (index == 2) operation.emplace<reference::Grouped>();
  ArchiveFields(*reader, operation);
  return operation;
}

}  // namespace intact::verify
#endif  // INTACT_VERIFY_TARGETS_WIRE_H_
