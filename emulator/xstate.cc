#include "emulator/xstate.h"

#include <cpuid.h>
#include <signal.h>

#include <algorithm>
#include <cstring>

namespace intact::emulator {
namespace {

constexpr size_t kSoftwareBytes = 464;
constexpr size_t kXstateBv = 512;
constexpr uint64_t kYmmBits = uint64_t{1} << 2;
constexpr uint64_t kAvx512Bits = uint64_t{7} << 5;

size_t ComponentOffset(int bit) {
  unsigned size = 0, offset = 0, ecx = 0, edx = 0;
  __get_cpuid_count(0xD, static_cast<unsigned>(bit), &size, &offset, &ecx, &edx);
  return offset;
}

}  // namespace

const VectorState::Component& VectorState::Xmm() {
  static constexpr Component kComponent = {1, 160, 16, 16};
  return kComponent;
}

const VectorState::Component& VectorState::YmmHi128() {
  static const Component kComponent = {2, ComponentOffset(2), 16, 16};
  return kComponent;
}

const VectorState::Component& VectorState::Opmask() {
  static const Component kComponent = {5, ComponentOffset(5), 8, 8};
  return kComponent;
}

const VectorState::Component& VectorState::ZmmHi256() {
  static const Component kComponent = {6, ComponentOffset(6), 32, 16};
  return kComponent;
}

const VectorState::Component& VectorState::Hi16Zmm() {
  static const Component kComponent = {7, ComponentOffset(7), 64, 16};
  return kComponent;
}

std::optional<VectorState> VectorState::Of(ucontext_t* context) {
  auto* area = reinterpret_cast<uint8_t*>(context->uc_mcontext.fpregs);
  if (area == nullptr) return std::nullopt;
  _fpx_sw_bytes software;
  std::memcpy(&software, area + kSoftwareBytes, sizeof(software));
  if (software.magic1 != FP_XSTATE_MAGIC1 || (software.xstate_bv & kYmmBits) == 0) return std::nullopt;
  uint32_t magic2 = 0;
  std::memcpy(&magic2, area + software.xstate_size, sizeof(magic2));
  if (magic2 != FP_XSTATE_MAGIC2) return std::nullopt;
  return VectorState(area, (software.xstate_bv & kAvx512Bits) == kAvx512Bits);
}

uint64_t VectorState::XstateBv() const {
  uint64_t bits = 0;
  std::memcpy(&bits, area_ + kXstateBv, sizeof(bits));
  return bits;
}

bool VectorState::Has(const Component& component) const { return (XstateBv() >> component.bit & 1) != 0; }

void VectorState::ReadPart(const Component& component, int number, std::span<uint8_t> out) const {
  if (Has(component)) {
    std::memcpy(out.data(), area_ + component.offset + static_cast<size_t>(number) * component.bytes,
                out.size());
  } else {
    std::ranges::fill(out, uint8_t{0});
  }
}

void VectorState::WritePart(const Component& component, int number, std::span<const uint8_t> value) {
  if (!Has(component)) {
    if (std::ranges::all_of(value, [](uint8_t byte) { return byte == 0; })) return;
    // Leaving the initial state: the other registers' parts become meaningful, and must be zero.
    std::memset(area_ + component.offset, 0, component.count * component.bytes);
    const uint64_t bits = XstateBv() | uint64_t{1} << component.bit;
    std::memcpy(area_ + kXstateBv, &bits, sizeof(bits));
  }
  std::memcpy(area_ + component.offset + static_cast<size_t>(number) * component.bytes, value.data(),
              value.size());
}

Vector VectorState::Read(int number) const {
  Vector value;
  const std::span bytes(value.bytes);
  if (number >= 16) {
    if (has_avx512_) ReadPart(Hi16Zmm(), number - 16, bytes);
    return value;
  }
  ReadPart(Xmm(), number, bytes.first<16>());
  ReadPart(YmmHi128(), number, bytes.subspan<16, 16>());
  if (has_avx512_) ReadPart(ZmmHi256(), number, bytes.last<32>());
  return value;
}

void VectorState::Write(int number, const Vector& value) {
  const std::span bytes(value.bytes);
  if (number >= 16) {
    if (has_avx512_) WritePart(Hi16Zmm(), number - 16, bytes);
    return;
  }
  WritePart(Xmm(), number, bytes.first<16>());
  WritePart(YmmHi128(), number, bytes.subspan<16, 16>());
  if (has_avx512_) WritePart(ZmmHi256(), number, bytes.last<32>());
}

uint64_t VectorState::ReadMask(int number) const {
  std::array<uint8_t, 8> bytes = {};
  ReadPart(Opmask(), number, bytes);
  uint64_t mask = 0;
  std::memcpy(&mask, bytes.data(), sizeof(mask));
  return mask;
}

void VectorState::WriteMask(int number, uint64_t value) {
  std::array<uint8_t, 8> bytes = {};
  std::memcpy(bytes.data(), &value, sizeof(value));
  WritePart(Opmask(), number, bytes);
}

}  // namespace intact::emulator
