#include "tests/emulator/xstate.h"

#include <cpuid.h>
#include <signal.h>

#include <algorithm>
#include <cstring>

namespace intact::emulator {
namespace {

constexpr size_t kSoftwareBytes = 464;
constexpr size_t kXstateBv = 512;
constexpr int kRegisters = 16;

size_t ComponentOffset(int bit) {
  unsigned size = 0, offset = 0, ecx = 0, edx = 0;
  __get_cpuid_count(0xD, static_cast<unsigned>(bit), &size, &offset, &ecx, &edx);
  return offset;
}

}  // namespace

VectorState::Component VectorState::YmmHi128() {
  static const size_t kOffset = ComponentOffset(2);
  return {2, kOffset, 16};
}

VectorState::Component VectorState::ZmmHi256() {
  static const size_t kOffset = ComponentOffset(6);
  return {6, kOffset, 32};
}

std::optional<VectorState> VectorState::Of(ucontext_t* context) {
  auto* area = reinterpret_cast<uint8_t*>(context->uc_mcontext.fpregs);
  if (area == nullptr) return std::nullopt;
  _fpx_sw_bytes software;
  std::memcpy(&software, area + kSoftwareBytes, sizeof(software));
  const uint64_t needed = uint64_t{1} << YmmHi128().bit;
  if (software.magic1 != FP_XSTATE_MAGIC1 || (software.xstate_bv & needed) == 0) return std::nullopt;
  uint32_t magic2 = 0;
  std::memcpy(&magic2, area + software.xstate_size, sizeof(magic2));
  if (magic2 != FP_XSTATE_MAGIC2) return std::nullopt;
  return VectorState(area);
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
    // Leaving the initial state: the other registers' parts become meaningful, and must be zero.
    std::memset(area_ + component.offset, 0, kRegisters * component.bytes);
    const uint64_t bits = XstateBv() | uint64_t{1} << component.bit;
    std::memcpy(area_ + kXstateBv, &bits, sizeof(bits));
  }
  std::memcpy(area_ + component.offset + static_cast<size_t>(number) * component.bytes, value.data(),
              value.size());
}

Ymm VectorState::Read(int number) const {
  Ymm value;
  ReadPart(Xmm(), number, std::span(value).first<16>());
  ReadPart(YmmHi128(), number, std::span(value).last<16>());
  return value;
}

void VectorState::Write(int number, const Ymm& value) {
  WritePart(Xmm(), number, std::span(value).first<16>());
  WritePart(YmmHi128(), number, std::span(value).last<16>());
  if (Has(ZmmHi256())) WritePart(ZmmHi256(), number, Ymm{});
}

}  // namespace intact::emulator
