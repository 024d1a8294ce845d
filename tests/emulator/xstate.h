// The vector registers of an interrupted thread, as the kernel saved them in the signal frame by XSAVE in its
// standard form; the kernel restores them from there when the handler returns.
//
//   byte 0    legacy area; XMM0–15 from byte 160, 16 bytes each; from byte 464 the kernel's own words (magic1
//   …) byte 512  header; its first 8 bytes are XSTATE_BV: a component whose bit is clear is in its initial
//   state (zero)
//             and its bytes mean nothing
//   …         YMM_Hi128 (component 2), 16 bytes each; ZMM_Hi256 of registers 0–15 (component 6), 32 bytes
//   each;
//             where they lie tells CPUID leaf 0xD
#ifndef INTACT_TESTS_EMULATOR_XSTATE_H_
#define INTACT_TESTS_EMULATOR_XSTATE_H_

#include <sys/ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace intact::emulator {

using Ymm = std::array<uint8_t, 32>;

class VectorState {
 public:
  /// Nothing if the frame holds no XSAVE area with the YMM registers.
  static std::optional<VectorState> Of(ucontext_t* context);

  /// The low 256 bits of register `number`, 0 to 15.
  Ymm Read(int number) const;
  /// Writes them, and zeroes what lies above, as every VEX-encoded instruction does.
  void Write(int number, const Ymm& value);

 private:
  struct Component {
    int bit;        // in XSTATE_BV
    size_t offset;  // of register 0's part
    size_t bytes;   // of one register's part
  };
  explicit VectorState(uint8_t* area) : area_(area) {}

  static Component Xmm() { return {1, 160, 16}; }
  static Component YmmHi128();
  static Component ZmmHi256();
  bool Has(const Component& component) const;
  void ReadPart(const Component& component, int number, std::span<uint8_t> out) const;
  void WritePart(const Component& component, int number, std::span<const uint8_t> value);
  uint64_t XstateBv() const;

  uint8_t* area_;
};

}  // namespace intact::emulator
#endif  // INTACT_TESTS_EMULATOR_XSTATE_H_
