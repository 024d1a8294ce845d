#include "emulator/tiles.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace intact::emulator {
namespace {

constexpr size_t kPalette = 0;
constexpr size_t kStartRow = 1;
constexpr size_t kColsb = 16;
constexpr size_t kRows = 48;

/// Four products of adjacent bytes, as TDPB**D adds them to an int32. Wraps, hence unsigned.
uint32_t DotBytes(const uint8_t* a, const uint8_t* b, bool a_is_signed, bool b_is_signed) {
  const auto widen = [](uint8_t byte, bool is_signed) {
    return is_signed ? static_cast<int8_t>(byte) : int{byte};
  };
  int sum = 0;
  for (int i = 0; i < 4; ++i) sum += widen(a[i], a_is_signed) * widen(b[i], b_is_signed);
  return static_cast<uint32_t>(sum);
}

}  // namespace

int Tiles::Rows(int tile) const { return config_[kRows + static_cast<size_t>(tile)]; }

int Tiles::Colsb(int tile) const {
  uint16_t colsb = 0;
  std::memcpy(&colsb, &config_[kColsb + 2 * static_cast<size_t>(tile)], sizeof(colsb));
  return colsb;
}

std::string Tiles::CheckTile(int tile) const {
  if (config_[kPalette] == 0) return "#UD: no tiles are configured";
  if (tile >= kTiles) return fmt::format("#UD: there is no tmm{}", tile);
  if (Rows(tile) == 0) return fmt::format("#UD: tmm{} is not configured", tile);
  return "";
}

std::string Tiles::CheckMoved(int tile) const {
  std::string fault = CheckTile(tile);
  if (fault.empty() && Colsb(tile) % 4 != 0) {
    fault = fmt::format("#UD: tmm{} has rows of {} bytes, not a multiple of 4", tile, Colsb(tile));
  }
  return fault;
}

std::string Tiles::LoadConfig(const uint8_t* memory) {
  Tiles next;
  std::memcpy(next.config_.data(), memory, next.config_.size());
  if (next.config_[kPalette] == 0) return Release();
  if (next.config_[kPalette] > 1)
    return fmt::format("#GP: palette {}; expected at most 1", next.config_[kPalette]);
  for (size_t i = 0; i < next.config_.size(); ++i) {
    const bool reserved =
        (i > kStartRow && i < kColsb) || (i >= kColsb + 2 * kTiles && i < kRows) || i >= kRows + kTiles;
    if (reserved && next.config_[i] != 0)
      return fmt::format("#GP: reserved byte {} of the configuration is not 0", i);
  }
  for (int tile = 0; tile < kTiles; ++tile) {
    const int rows = next.Rows(tile);
    const int colsb = next.Colsb(tile);
    if (rows > kMaxRows || colsb > kMaxColsb || (rows == 0) != (colsb == 0)) {
      return fmt::format("#GP: tmm{} of {} rows × {} bytes; both must be 0, or at most {} and {}", tile, rows,
                         colsb, kMaxRows, kMaxColsb);
    }
  }
  *this = next;
  return "";
}

std::string Tiles::StoreConfig(uint8_t* memory) const {
  std::memcpy(memory, config_.data(), config_.size());
  return "";
}

std::string Tiles::Release() {
  *this = Tiles();
  return "";
}

std::string Tiles::Zero(int tile) {
  std::string fault = CheckTile(tile);
  if (fault.empty()) At(tile) = {};
  return fault;
}

/// Loads and stores begin at the configuration's start row (for the CPU, to resume after a page fault) and
/// clear it.
int Tiles::TakeStartRow() { return std::exchange(config_[kStartRow], uint8_t{0}); }

std::string Tiles::Load(int tile, const uint8_t* memory, uint64_t stride_bytes) {
  std::string fault = CheckMoved(tile);
  if (!fault.empty()) return fault;
  for (int row = TakeStartRow(); row < Rows(tile); ++row) {
    std::memcpy(At(tile)[static_cast<size_t>(row)].data(), memory + static_cast<uint64_t>(row) * stride_bytes,
                static_cast<size_t>(Colsb(tile)));
  }
  return "";
}

std::string Tiles::Store(int tile, uint8_t* memory, uint64_t stride_bytes) {
  std::string fault = CheckMoved(tile);
  if (!fault.empty()) return fault;
  for (int row = TakeStartRow(); row < Rows(tile); ++row) {
    std::memcpy(memory + static_cast<uint64_t>(row) * stride_bytes, At(tile)[static_cast<size_t>(row)].data(),
                static_cast<size_t>(Colsb(tile)));
  }
  return "";
}

std::string Tiles::DotProduct(int dst, int a, int b, bool a_is_signed, bool b_is_signed) {
  for (const int tile : {dst, a, b}) {
    std::string fault = CheckTile(tile);
    if (!fault.empty()) return fault;
  }
  if (dst == a || dst == b || a == b) return "#UD: the three tiles must differ";
  if (Rows(dst) != Rows(a) || Colsb(dst) != Colsb(b) || Colsb(a) != 4 * Rows(b) || Colsb(b) % 4 != 0) {
    return fmt::format("#UD: shapes do not match: {}×{} bytes += {}×{} · {}×{}", Rows(dst), Colsb(dst),
                       Rows(a), Colsb(a), Rows(b), Colsb(b));
  }
  for (size_t m = 0; m < static_cast<size_t>(Rows(dst)); ++m) {
    for (size_t n = 0; n < static_cast<size_t>(Colsb(dst)); n += 4) {
      uint32_t sum = 0;
      std::memcpy(&sum, &At(dst)[m][n], sizeof(sum));
      for (size_t k = 0; k < static_cast<size_t>(Rows(b)); ++k) {
        sum += DotBytes(&At(a)[m][4 * k], &At(b)[k][n], a_is_signed, b_is_signed);
      }
      std::memcpy(&At(dst)[m][n], &sum, sizeof(sum));
    }
  }
  return "";
}

}  // namespace intact::emulator
