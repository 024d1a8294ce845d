// The vector registers of an interrupted thread. The kernel saved them in the signal frame (XSAVE, standard
// form), and restores them from the frame when the handler returns.
//
//   byte 0    legacy area; XMM0–15 from byte 160, 16 bytes each; from byte 464 the kernel's own words
//             (magic1 …)
//   byte 512  header; its first 8 bytes are XSTATE_BV: a component whose bit is clear is in its initial state
//             (zero), and its bytes in the area are ignored
//   …         component 2  YMM_Hi128   16 bytes of each of YMM0–15
//             component 5  opmask       8 bytes of each of k0–7
//             component 6  ZMM_Hi256   32 bytes of each of ZMM0–15
//             component 7  Hi16_ZMM    64 bytes of each of ZMM16–31
//             CPUID leaf 0xD reports the components' offsets
#ifndef INTACT_EMULATOR_XSTATE_H_
#define INTACT_EMULATOR_XSTATE_H_

#include <sys/ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace intact::emulator {

/// A ZMM register, or the YMM or XMM register in its low bytes.
struct alignas(64) Vector {
  std::array<uint8_t, 64> bytes = {};
  bool operator==(const Vector&) const = default;
};

class VectorState {
 public:
  /// Nothing if the frame holds no XSAVE area with the YMM registers.
  static std::optional<VectorState> Of(ucontext_t* context);

  /// Whether the frame has ZMM registers, registers 16 to 31 and masks.
  bool HasAvx512() const { return has_avx512_; }

  /// Register `number`. Bytes that the frame does not have read as zero, and are dropped when written.
  Vector Read(int number) const;
  void Write(int number, const Vector& value);
  /// Only if HasAvx512().
  uint64_t ReadMask(int number) const;
  void WriteMask(int number, uint64_t value);

 private:
  struct Component {
    int bit;        // in XSTATE_BV
    size_t offset;  // of its first register's part
    size_t bytes;   // of one register's part
    size_t count;   // of registers
  };
  VectorState(uint8_t* area, bool has_avx512) : area_(area), has_avx512_(has_avx512) {}

  static const Component& Xmm();
  static const Component& YmmHi128();
  static const Component& Opmask();
  static const Component& ZmmHi256();
  static const Component& Hi16Zmm();
  bool Has(const Component& component) const;
  void ReadPart(const Component& component, int number, std::span<uint8_t> out) const;
  void WritePart(const Component& component, int number, std::span<const uint8_t> value);
  uint64_t XstateBv() const;

  uint8_t* area_;
  bool has_avx512_;
};

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_XSTATE_H_
