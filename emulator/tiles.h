// AMX's tile registers in software: palette 1 of AMX-INT8, eight tiles of at most 16 rows × 64 bytes.
//
// The configuration, 64 bytes that LDTILECFG loads and STTILECFG stores:
//   0 palette · 1 start row · 2–15 zero · 16–31 colsb of tiles 0–7, 16 bits each · 32–47 zero ·
//   48–55 rows of tiles 0–7 · 56–63 zero
//
// Programs cannot see the bytes of a tile beyond its configured rows and columns (LDTILECFG zeroes all
// tiles), so these bytes are not modelled. Source: Intel SDM volume 2, the pages of the AMX instructions.
#ifndef INTACT_EMULATOR_TILES_H_
#define INTACT_EMULATOR_TILES_H_

#include <array>
#include <cstdint>
#include <string>

namespace intact::emulator {

/// The tiles of one thread. An operation that the CPU would refuse does nothing, and returns why the CPU
/// would raise #UD or #GP. Valid operations return "". `memory` holds the bytes that the instruction touches;
/// no other byte is touched.
class Tiles {
 public:
  std::string LoadConfig(const uint8_t* memory);
  std::string StoreConfig(uint8_t* memory) const;
  std::string Release();
  bool IsConfigured() const { return config_[0] != 0; }

  std::string Zero(int tile);
  /// Row r lies at memory + r·stride_bytes (modulo 2⁶⁴).
  std::string Load(int tile, const uint8_t* memory, uint64_t stride_bytes);
  std::string Store(int tile, uint8_t* memory, uint64_t stride_bytes);
  /// dst[m,n] += Σ a[m, 4k…4k+3] · b[k, 4n…4n+3], wrapping in int32.
  std::string DotProduct(int dst, int a, int b, bool a_is_signed, bool b_is_signed);

 private:
  static constexpr int kTiles = 8;
  static constexpr int kMaxRows = 16;
  static constexpr int kMaxColsb = 64;
  using Tile = std::array<std::array<uint8_t, kMaxColsb>, kMaxRows>;

  int Rows(int tile) const;
  int Colsb(int tile) const;
  Tile& At(int tile) { return data_[static_cast<size_t>(tile)]; }
  /// "" if `tile` is a configured tile; else the fault.
  std::string CheckTile(int tile) const;
  /// CheckTile() for loads and stores. A configuration may have rows of any number of bytes, but an Intel
  /// Xeon with AMX moves and multiplies only whole 4-byte columns.
  std::string CheckMoved(int tile) const;
  int TakeStartRow();

  std::array<uint8_t, 64> config_ = {};
  std::array<Tile, kTiles> data_ = {};
};

}  // namespace intact::emulator
#endif  // INTACT_EMULATOR_TILES_H_
