// Values read from a fuzzer's bytes, one after the other, with zeros beyond the end. Zeros mean the simplest
// choice, so fewer bytes make a simpler call.
#ifndef INTACT_FUZZ_INPUT_H_
#define INTACT_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

namespace intact::fuzz {

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  uint64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | Byte();
    return word;
  }

  /// A value in [low, high], a range of at most 65536 values.
  int64_t Integer(int64_t low, int64_t high) {
    const int64_t values = high - low + 1;
    const int64_t drawn = values <= 256 ? Byte() : Byte() << 8 | Byte();
    return low + drawn % values;
  }

  bool OneIn(int n) { return Byte() % n == n - 1; }

  template <class T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Byte() % values.size()];
  }

  /// Rarely sets `*field` to one of `values`, which the library may refuse.
  template <class T>
  void Spoil(T* field, std::initializer_list<std::type_identity_t<T>> values) {
    if (!OneIn(64)) return;
    *field = Pick(values);
    is_spoilt_ = true;
  }

  /// Whether Spoil() has changed something.
  bool is_spoilt() const { return is_spoilt_; }

 private:
  std::span<const uint8_t> bytes_;
  bool is_spoilt_ = false;
};

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_INPUT_H_
