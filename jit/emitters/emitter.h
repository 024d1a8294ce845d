// Operations that differ between vector ISAs, so that generators are written once. Instructions that asmjit
// encodes for ymm and zmm by one name (VPADDD, VMULPS, …) are emitted directly through code().
#ifndef INTACT_JIT_EMITTERS_EMITTER_H_
#define INTACT_JIT_EMITTERS_EMITTER_H_

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "core/isas.h"
#include "jit/register_file.h"

namespace intact::jit {

class Emitter {
 public:
  Emitter(asmjit::x86::Assembler& code, RegisterFile& registers) : code_(code), registers_(registers) {}
  virtual ~Emitter() = default;
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;

  asmjit::x86::Assembler& code() { return code_; }
  RegisterFile& registers() { return registers_; }
  int vector_bytes() const { return registers_.vector_bytes(); }
  int lanes() const { return vector_bytes() / 4; }

  virtual void Load(const Vec& to, const Mem& from) = 0;
  /// Loads the first `bytes`: a whole vector, or 4, 8, 16 or 32 bytes. Other lanes may then hold anything.
  void LoadFirst(const Vec& to, const Mem& from, int bytes);
  virtual void Store(const Mem& to, const Vec& from) = 0;
  virtual void Copy(const Vec& to, const Vec& from) = 0;
  virtual void Zero(const Vec& to) = 0;
  /// Packs one, two or four vectors of int32 into the low bytes of the first vector, in their order.
  /// Saturates each value to int16, adds `offset`, a vector of int16, and saturates to s8 or u8. `order`
  /// addresses PackOrder(). Destroys the other vectors. Needs one free register.
  void PackBytes(const std::vector<Vec>& vectors, const Mem& offset, bool is_signed, const Mem& order);
  /// PackBytes() for quartered vectors (OrderQuarters()); the bytes come out in order. `offset` may be null. Needs no
  /// free register.
  void PackQuarteredBytes(const std::vector<Vec>& vectors, const Mem* offset, bool is_signed);
  /// Puts four *quartered* vectors in order. Quartered vector i holds dwords 4i to 4i + 3 of the sixteen
  /// dwords of each 128-bit quarter. Unpacking a vector of bytes twice, to dwords, gives quartered vectors.
  /// Needs one free register.
  void OrderQuarters(std::vector<Vec>* four);
  /// Stores part number `part` of `from`, if it is cut into parts of `bytes`: the whole vector, halves or quarters.
  /// The third quarter of a ymm destroys the first, and the fourth can be stored only after it.
  virtual void StorePart(const Mem& to, const Vec& from, int bytes, int part) = 0;
  /// Adds the sum of each vector's int32 lanes to one of four int32 in memory; destroys the vectors.
  virtual void AddLaneSums(const Mem& to, const std::array<Vec, 4>& vectors) = 0;
  /// Loads lanes()/2 rows of lanes() int32 from memory that holds them column by column: `columns` addresses
  /// the first row of each column. `rows` has a register for each row. The registers come back in another
  /// order, with the rows in order. Needs one free register.
  void LoadTransposed(const std::vector<Mem>& columns, std::vector<Vec>* rows);

 protected:
  /// Loads 16 or 32 bytes: less than a vector.
  virtual void LoadPart(const Vec& to, const Mem& from, int bytes) = 0;
  /// Loads the halves of a vector from two places.
  virtual void LoadHalves(const Vec& to, const Mem& low, const Mem& high) = 0;
  /// Transposes `vectors` as a square of 128-bit lanes, lanes()/4 in each direction.
  virtual void TransposeQuarters(std::vector<Vec>* vectors) = 0;
  /// (x, y) = (low(x, y), high(x, y)), through the free register `spare`, which is swapped with x.
  template <class Low, class High>
  static void Butterfly(Vec* x, Vec* y, Vec* spare, Low low, High high) {
    low(*spare, *x, *y);
    high(*y, *x, *y);
    std::swap(*x, *spare);
  }

 private:
  asmjit::x86::Assembler& code_;
  RegisterFile& registers_;
};

/// The indices that PackBytes() reads: `lanes` dwords.
std::vector<int32_t> PackOrder(int lanes);

/// The registers that an ISA's emitter works with.
RegisterFile MakeRegisterFile(core::Isa isa);
/// The width and number of vector registers.
int VectorBytes(core::Isa isa);
int VectorCount(core::Isa isa);

std::unique_ptr<Emitter> MakeEmitter(core::Isa isa, asmjit::x86::Assembler& code, RegisterFile& registers);

}  // namespace intact::jit
#endif  // INTACT_JIT_EMITTERS_EMITTER_H_
