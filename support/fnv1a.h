// FNV-1a, the hash of outputs that reports compare. It is the same on every machine.
#ifndef INTACT_SUPPORT_FNV1A_H_
#define INTACT_SUPPORT_FNV1A_H_

#include <cstdint>
#include <span>
#include <string>

namespace intact::support {

/// The hash of `bytes`. `hash`: the hash of the bytes before `bytes`.
constexpr uint64_t Fnv1a(std::span<const uint8_t> bytes, uint64_t hash = 0xcbf29ce484222325u) {
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}
inline uint64_t Fnv1a(const std::string& text) {
  return Fnv1a({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace intact::support
#endif  // INTACT_SUPPORT_FNV1A_H_
