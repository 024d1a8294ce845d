#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

CacheSizes& MutableCaches() {
  static CacheSizes sizes = CachesOf(jit::HostFacts());
  return sizes;
}

}  // namespace

CacheSizes CachesOf(const jit::MachineFacts& facts) noexcept {
  CacheSizes sizes = kAssumedCaches;
  if (const int64_t bytes = jit::DetectCacheBytes(facts, jit::CacheLevel::kL1d); bytes != 0) {
    sizes.l1d_bytes = bytes;
  }
  if (const int64_t bytes = jit::DetectCacheBytes(facts, jit::CacheLevel::kL2); bytes != 0) {
    sizes.l2_bytes = bytes;
  }
  sizes.l3_bytes = jit::DetectCacheBytes(facts, jit::CacheLevel::kL3);
  return sizes;
}

const CacheSizes& Caches() { return MutableCaches(); }

void SetCachesForTesting(const CacheSizes& sizes) { MutableCaches() = sizes; }

}  // namespace intact::kernels
