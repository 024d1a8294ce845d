#include "verify/studies/pairs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>

#include "reference/models/models.h"
#include "support/some_threads.h"

namespace intact::verify {
namespace {

/// The (a0, a1) whose larger element is `largest`, as adjacent bytes. Padded with zeros,
/// which never clamp, to whole blocks.
struct ActivationPairs {
  explicit ActivationPairs(int largest) {
    for (int other = 0; other <= largest; ++other) {
      Append(largest, other);
      if (other != largest) Append(other, largest);
    }
    count = static_cast<int>(bytes.size()) / 2;
    bytes.resize((bytes.size() + kPairsBlock - 1) / kPairsBlock * kPairsBlock);
  }
  void Append(int a0, int a1) {
    bytes.push_back(static_cast<uint8_t>(a0));
    bytes.push_back(static_cast<uint8_t>(a1));
  }
  std::vector<uint8_t> bytes;
  int count = 0;
};

std::vector<ActivationPairs> AllActivationPairs() {
  std::vector<ActivationPairs> all;
  all.reserve(ClampTable::kActivations);
  for (int largest = 0; largest < ClampTable::kActivations; ++largest) all.emplace_back(largest);
  return all;
}

ClampCount CountByModel(const ActivationPairs& pairs, int8_t w0, int8_t w1) {
  ClampCount count;
  for (int i = 0; i < pairs.count; ++i) {
    const uint8_t* a = &pairs.bytes[2 * static_cast<size_t>(i)];
    const int32_t sum = a[0] * w0 + a[1] * w1;
    const int32_t clamped = reference::Maddubs(a[0], a[1], w0, w1);
    count.high += clamped < sum ? 1 : 0;
    count.low += clamped > sum ? 1 : 0;
  }
  return count;
}

void MapOneWeightPair(const std::vector<ActivationPairs>& activations, int w0, int w1, PairMap* map) {
  const int magnitude = std::max(std::abs(w0), std::abs(w1));
  for (int largest = 0; largest < ClampTable::kActivations; ++largest) {
    const ActivationPairs& pairs = activations[static_cast<size_t>(largest)];
    const auto v0 = static_cast<int8_t>(w0);
    const auto v1 = static_cast<int8_t>(w1);
    map->inputs += pairs.count;
    map->by_model.At(largest, magnitude) += CountByModel(pairs, v0, v1);
    if (map->instruction_available) {
      map->by_instruction.At(largest, magnitude) +=
          CountByInstruction(pairs.bytes, v0, v1, &map->instruction_mismatches);
    }
  }
}

}  // namespace

ClampCount ClampTable::Within(int amax, int wmax) const {
  ClampCount sum;
  for (int activation = 0; activation <= amax; ++activation) {
    for (int magnitude = 0; magnitude <= wmax; ++magnitude) sum += counts_[Index(activation, magnitude)];
  }
  return sum;
}

void ClampTable::Add(const ClampTable& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

PairMap MapPairs(int w0_begin, int w0_end, int threads) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ActivationPairs> activations = AllActivationPairs();
  PairMap map;
  map.instruction_available = HasMaddubs();
  std::vector<PairMap> parts(static_cast<size_t>(std::max(threads, 1)), map);
  // Each free thread takes the next weight. If no other thread can be made, the calling thread takes all.
  std::atomic<int> next = w0_begin;
  const auto run_part = [&](int part) {
    for (int w0 = next++; w0 < w0_end; w0 = next++) {
      for (int w1 = -128; w1 <= 127; ++w1) {
        MapOneWeightPair(activations, w0, w1, &parts[static_cast<size_t>(part)]);
      }
    }
  };
  {
    const auto others = support::StartSomeThreads(static_cast<int>(parts.size()) - 1,
                                                  [&](int other) { run_part(other + 1); });
    run_part(0);
  }
  for (const PairMap& part : parts) {
    map.inputs += part.inputs;
    map.by_model.Add(part.by_model);
    map.by_instruction.Add(part.by_instruction);
    map.instruction_mismatches += part.instruction_mismatches;
  }
  map.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return map;
}

PairMap MapAllPairs(int threads) { return MapPairs(-128, 128, threads); }

}  // namespace intact::verify
