// Emits each emulated instruction and compares it with a scalar computation. If the CPU has the instruction,
// it runs natively and is compared too. Each test prints who executed it.
#include "emulator/emulator.h"

#include <asmjit/x86.h>
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "emulator/xstate.h"
#include "jit/emitters/dot.h"
#include "tests/support/checked_emulator.h"
#include "tests/support/printers.h"
#include "tests/support/test_runtime.h"

namespace intact::emulator {
namespace {

namespace x86 = asmjit::x86;

/// std::mt19937 draws 32 bits in a 64-bit type.
uint32_t Draw(std::mt19937& generator) { return static_cast<uint32_t>(generator()); }

std::vector<uint8_t> RandomBytes(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(Draw(generator));
  return bytes;
}

/// Emits code with `emit(assembler)` and runs it as void().
template <class Emit>
void RunEmitted(const Emit& emit) {
  asmjit::JitRuntime& runtime = tests::TestRuntime();
  asmjit::CodeHolder code;
  ASSERT_EQ(code.init(runtime.environment()), asmjit::kErrorOk);
  x86::Assembler as(&code);
  as.addDiagnosticOptions(asmjit::DiagnosticOptions::kValidateAssembler);
  emit(as);
  ASSERT_EQ(as.ret(), asmjit::kErrorOk);
  void (*run)() = nullptr;
  ASSERT_EQ(runtime.add(&run, &code), asmjit::kErrorOk);
  run();
  runtime.release(run);
}

/// Runs `run` and prints who executed its instructions.
template <class Run>
void StateWhoExecutes(const Run& run) {
  const uint64_t before = ScopedEmulator::Count();
  run();
  const uint64_t emulated = ScopedEmulator::Count() - before;
  fmt::print("{}\n",
             emulated > 0 ? fmt::format("{} instructions emulated", emulated) : "executed by the CPU itself");
}

// -----------------------------------------------------------------------------------------------------------
// VPDPBUSD and its like for other signs

using jit::DotSigns;

constexpr DotSigns kAllSigns[] = {{false, false}, {false, true}, {true, false}, {true, true}};

int Value(uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : int{byte}; }

void EmitVexDot(x86::Assembler& as, DotSigns signs, const x86::Vec& accumulator, const x86::Vec& a,
                const asmjit::Operand_& b) {
  jit::EmitDot(as, core::Encoding::kVex, signs, accumulator, a, b);
}

bool HasAvx512() { return asmjit::CpuInfo::host().hasFeature(asmjit::CpuFeatures::X86::kAVX512_F); }

/// All sixteen registers that VEX can name, with their upper parts of AVX-512 (zero without it).
struct RegisterFile {
  static constexpr int kCount = 16;
  std::array<std::array<uint8_t, 64>, kCount> bytes = {};
  bool operator==(const RegisterFile&) const = default;
};

RegisterFile RandomRegisters(uint32_t seed) {
  RegisterFile file;
  const std::vector<uint8_t> bytes = RandomBytes(sizeof(file.bytes), seed);
  for (size_t i = 0; i < file.bytes.size(); ++i) {
    std::memcpy(file.bytes[i].data(), &bytes[64 * i], HasAvx512() ? 64 : 32);
  }
  return file;
}

void EmitMoveAll(x86::Assembler& as, const RegisterFile& file, bool is_load) {
  as.mov(x86::rax, reinterpret_cast<uint64_t>(file.bytes.data()));
  for (uint32_t i = 0; i < RegisterFile::kCount; ++i) {
    const x86::Mem memory = x86::ptr(x86::rax, static_cast<int32_t>(64 * i));
    if (HasAvx512()) {
      is_load ? as.vmovdqu64(x86::zmm(i), memory) : as.vmovdqu64(memory, x86::zmm(i));
    } else {
      is_load ? as.vmovdqu(x86::ymm(i), memory) : as.vmovdqu(memory, x86::ymm(i));
    }
  }
}

/// `registers` after the dot product dst, first, with the given bytes as second source.
RegisterFile ExpectedAfter(const RegisterFile& registers, DotSigns signs, uint32_t dst, uint32_t first,
                           std::span<const uint8_t> second) {
  RegisterFile result = registers;
  auto& out = result.bytes[dst];
  out = {};
  for (size_t lane = 0; lane < second.size() / 4; ++lane) {
    int32_t accumulator = 0;
    std::memcpy(&accumulator, &registers.bytes[dst][4 * lane], 4);
    int64_t sum = accumulator;
    for (size_t i = 4 * lane; i < 4 * lane + 4; ++i) {
      sum += int64_t{Value(registers.bytes[first][i], signs.a_signed)} * Value(second[i], signs.b_signed);
    }
    const auto wrapped = static_cast<uint32_t>(sum);
    std::memcpy(&out[4 * lane], &wrapped, 4);
  }
  return result;
}

x86::Vec VectorRegister(bool is_256, uint32_t number) {
  return is_256 ? x86::Vec(x86::ymm(number)) : x86::Vec(x86::xmm(number));
}

// Encodings by GNU as 2.40.
TEST(VexDot, HasItsEncodings) {
  const auto bytes = [](DotSigns signs, const x86::Vec& dst, const x86::Vec& first,
                        const asmjit::Operand_& second) {
    asmjit::CodeHolder code;
    code.init(asmjit::Environment::host());
    x86::Assembler as(&code);
    EmitVexDot(as, signs, dst, first, second);
    const uint8_t* const begin = code.textSection()->data();
    return std::vector<uint8_t>(begin, begin + code.textSection()->bufferSize());
  };
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(bytes({true, true}, x86::ymm1, x86::ymm2, x86::ymm3), (Bytes{0xc4, 0xe2, 0x6f, 0x50, 0xcb}));
  EXPECT_EQ(bytes({true, false}, x86::ymm1, x86::ymm2, x86::ymm3), (Bytes{0xc4, 0xe2, 0x6e, 0x50, 0xcb}));
  EXPECT_EQ(bytes({false, false}, x86::ymm1, x86::ymm2, x86::ymm3), (Bytes{0xc4, 0xe2, 0x6c, 0x50, 0xcb}));
  EXPECT_EQ(bytes({false, true}, x86::ymm1, x86::ymm2, x86::ymm3), (Bytes{0xc4, 0xe2, 0x6d, 0x50, 0xcb}));
  EXPECT_EQ(bytes({true, true}, x86::xmm11, x86::xmm12, x86::xmm13), (Bytes{0xc4, 0x42, 0x1b, 0x50, 0xdd}));
  EXPECT_EQ(bytes({true, false}, x86::ymm9, x86::ymm10, x86::ptr(x86::rax, x86::r9, 3, 0x40)),
            (Bytes{0xc4, 0x22, 0x2e, 0x50, 0x4c, 0xc8, 0x40}));
  EXPECT_EQ(bytes({false, false}, x86::xmm15, x86::xmm2, x86::ptr(x86::r12)),
            (Bytes{0xc4, 0x42, 0x68, 0x50, 0x3c, 0x24}));
}

TEST(VexDot, RefusesWhatVexDoesNotEncode) {
  struct Recorder : asmjit::ErrorHandler {
    void handleError(asmjit::Error, const char*, asmjit::BaseEmitter*) override { has_error = true; }
    bool has_error = false;
  } recorder;
  asmjit::CodeHolder code;
  code.init(asmjit::Environment::host());
  code.setErrorHandler(&recorder);
  x86::Assembler as(&code);
  EmitVexDot(as, {true, true}, x86::zmm1, x86::zmm2, x86::zmm3);
  EXPECT_TRUE(recorder.has_error);
}

class EmulatedDot : public testing::TestWithParam<DotSigns> {};

TEST_P(EmulatedDot, TakesEveryRegisterInEveryPlace) {
  const tests::CheckedEmulator emulator;
  StateWhoExecutes([] {
    uint32_t seed = 0;
    for (const bool is_256 : {false, true}) {
      for (uint32_t registers = 0; registers < 16 * 16 * 16;
           registers += 7) {  // 7 is coprime: all values of each register
        const uint32_t dst = registers % 16, first = registers / 16 % 16, second = registers / 256;
        const RegisterFile before = RandomRegisters(++seed);
        RegisterFile after;
        RunEmitted([&](x86::Assembler& as) {
          EmitMoveAll(as, before, true);
          EmitVexDot(as, GetParam(), VectorRegister(is_256, dst), VectorRegister(is_256, first),
                     VectorRegister(is_256, second));
          EmitMoveAll(as, after, false);
          as.vzeroupper();
        });
        const std::span<const uint8_t> bytes = std::span(before.bytes[second]).first(is_256 ? 32 : 16);
        ASSERT_TRUE(after == ExpectedAfter(before, GetParam(), dst, first, bytes))
            << "256 bits: " << is_256 << ", registers " << dst << " " << first << " " << second;
      }
    }
  });
}

/// The form of a memory operand. Registers are numbers.
struct Form {
  std::optional<uint32_t> base, index;
  uint32_t shift = 0;
  int32_t displacement = 0;

  /// The operand, if the base or index register has the right value. Without both registers, `address`.
  x86::Mem Operand(uint64_t address) const {
    if (base && index) return x86::ptr(x86::gpq(*base), x86::gpq(*index), shift, displacement);
    if (base) return x86::ptr(x86::gpq(*base), displacement);
    if (index) return x86::ptr(static_cast<uint64_t>(int64_t{displacement}), x86::gpq(*index), shift);
    return x86::ptr_abs(address);
  }
  std::string ToString() const {
    const auto name = [](const std::optional<uint32_t>& r) {
      return r ? std::to_string(*r) : std::string("none");
    };
    return fmt::format("base {} index {} shift {} displacement {}", name(base), name(index), shift,
                       displacement);
  }
};

constexpr uint32_t kRsp = 4;

std::vector<Form> AllForms() {
  std::vector<Form> forms = {Form{}};
  for (const int32_t displacement : {0, 0x40, -0x40, 0x1238, -0x1238}) {
    for (uint32_t first = 0; first < 16; ++first) {
      // The signal frame would overwrite data far below RSP.
      if (first != kRsp || displacement >= -0x40) forms.push_back({first, {}, 0, displacement});
      if (first == kRsp) continue;  // RSP cannot be an index
      for (const uint32_t shift : {0U, 1U, 2U, 3U}) {
        forms.push_back({{}, first, shift, displacement});
        for (uint32_t base = 0; base < 16; ++base) {
          if (base != first) forms.push_back({base, first, shift, displacement});
        }
      }
    }
  }
  return forms;
}

/// Room on the stack for operands addressed by RSP, and the value of an index register that points into it.
constexpr int32_t kStackRoom = 0x10000;
constexpr uint64_t kStackIndex = 0x1800;

/// RSP cannot point to the operand, so this copies the operand to the place that `form` addresses.
void EmitCopyToStack(x86::Assembler& as, const Form& form, uint64_t address, bool is_256) {
  const auto offset = static_cast<int32_t>(form.index ? kStackIndex << form.shift : 0) + form.displacement;
  as.mov(x86::rax, address);
  as.vmovdqu(VectorRegister(is_256, 0), x86::ptr(x86::rax));
  as.vmovdqu(x86::ptr(x86::rsp, offset), VectorRegister(is_256, 0));
}

/// Sets the registers of `form`, except RSP, so that it addresses `address`.
void EmitPoint(x86::Assembler& as, const Form& form, uint64_t address) {
  const uint64_t start = address - static_cast<uint64_t>(int64_t{form.displacement});
  const uint64_t index = form.base ? kStackIndex : start >> form.shift;
  if (form.index) as.mov(x86::gpq(*form.index), index);
  if (form.base && form.base != kRsp)
    as.mov(x86::gpq(*form.base), form.index ? start - (index << form.shift) : start);
}

/// Saves the registers that a function must save, makes room on the stack, and leaves all registers except
/// RSP to `body`.
void EmitFrame(x86::Assembler& as, const std::function<void()>& body) {
  const std::array<x86::Gp, 6> saved = {x86::rbx, x86::rbp, x86::r12, x86::r13, x86::r14, x86::r15};
  for (const x86::Gp& r : saved) as.push(r);
  as.sub(x86::rsp, kStackRoom);
  body();
  as.add(x86::rsp, kStackRoom);
  as.vzeroupper();
  for (size_t i = saved.size(); i-- > 0;) as.pop(saved[i]);
}

/// `kBytes` of random bytes below 2 GiB, for addresses of 32 bits. They end at a page that cannot be read.
class LowOperand {
 public:
  static constexpr size_t kBytes = 32;

  LowOperand() {
    void* mapped =
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    pages_ = static_cast<uint8_t*>(mapped);
    if (mprotect(pages_ + kPage, kPage, PROT_NONE) != 0) std::abort();
    std::ranges::copy(RandomBytes(kBytes, 99), pages_ + kPage - kBytes);
  }
  ~LowOperand() { munmap(pages_, 2 * kPage); }
  LowOperand(const LowOperand&) = delete;
  LowOperand& operator=(const LowOperand&) = delete;

  /// The last `count` bytes.
  std::span<const uint8_t> Last(size_t count) const { return {pages_ + kPage - count, count}; }

 private:
  static constexpr size_t kPage = 4096;
  uint8_t* pages_ = nullptr;
};

TEST_P(EmulatedDot, MultipliesExtremes) {
  const tests::CheckedEmulator emulator;
  StateWhoExecutes([] {
    constexpr uint8_t kBytes[] = {0, 1, 0x7f, 0x80, 0xff};
    constexpr uint32_t kSums[] = {0, 0x7fffffff, 0x80000000, 0xffffffff};  // these wrap
    RegisterFile before;
    for (const uint8_t first : kBytes) {
      for (const uint8_t second : kBytes) {
        for (const uint32_t sum : kSums) {
          for (size_t lane = 0; lane < 8; ++lane) std::memcpy(&before.bytes[1][4 * lane], &sum, 4);
          std::fill_n(before.bytes[2].begin(), 32, first);
          std::fill_n(before.bytes[3].begin(), 32, second);
          RegisterFile after;
          RunEmitted([&](x86::Assembler& as) {
            EmitMoveAll(as, before, true);
            EmitVexDot(as, GetParam(), x86::ymm1, x86::ymm2, x86::ymm3);
            EmitMoveAll(as, after, false);
            as.vzeroupper();
          });
          const auto bytes = std::span<const uint8_t>(before.bytes[3]).first(32);
          ASSERT_TRUE(after == ExpectedAfter(before, GetParam(), 1, 2, bytes))
              << int{first} << " × " << int{second} << " + " << sum;
        }
      }
    }
  });
}

TEST_P(EmulatedDot, TakesEveryFormOfMemoryOperand) {
  const tests::CheckedEmulator emulator;
  const LowOperand low;
  StateWhoExecutes([&] {
    uint32_t seed = 0;
    for (const Form& form : AllForms()) {
      const bool is_256 = ++seed % 2 == 0;
      const std::span<const uint8_t> operand = low.Last(is_256 ? 32 : 16);
      const auto address = reinterpret_cast<uint64_t>(operand.data());
      const RegisterFile before = RandomRegisters(seed);
      RegisterFile after;
      RunEmitted([&](x86::Assembler& as) {
        EmitFrame(as, [&] {
          if (form.base == kRsp) EmitCopyToStack(as, form, address, is_256);
          EmitMoveAll(as, before, true);
          EmitPoint(as, form, address);
          EmitVexDot(as, GetParam(), VectorRegister(is_256, 9), VectorRegister(is_256, 10),
                     form.Operand(address));
          EmitMoveAll(as, after, false);
        });
      });
      ASSERT_TRUE(after == ExpectedAfter(before, GetParam(), 9, 10, operand))
          << form.ToString() << ", 256 bits: " << is_256;
    }
  });
}

TEST_P(EmulatedDot, TakesRipRelativeOperands) {
  const tests::CheckedEmulator emulator;
  StateWhoExecutes([] {
    const std::vector<uint8_t> operand = RandomBytes(32, 5);
    const RegisterFile before = RandomRegisters(6);
    RegisterFile after;
    RunEmitted([&](x86::Assembler& as) {
      const asmjit::Label data = as.newLabel(), code = as.newLabel();
      as.jmp(code);
      as.bind(data);
      as.embed(operand.data(), operand.size());
      as.bind(code);
      EmitMoveAll(as, before, true);
      EmitVexDot(as, GetParam(), x86::ymm3, x86::ymm14, x86::ptr(data));
      EmitMoveAll(as, after, false);
      as.vzeroupper();
    });
    EXPECT_TRUE(after == ExpectedAfter(before, GetParam(), 3, 14, operand));
  });
}

TEST_P(EmulatedDot, ReadsRegistersInTheirInitialStateAsZero) {
  const tests::CheckedEmulator emulator;
  StateWhoExecutes([] {
    const std::vector<uint8_t> operand = RandomBytes(32, 7);
    RegisterFile after = RandomRegisters(8);
    RunEmitted([&](x86::Assembler& as) {
      as.mov(x86::rax, reinterpret_cast<uint64_t>(operand.data()));
      as.vzeroall();
      EmitVexDot(as, GetParam(), x86::ymm1, x86::ymm2, x86::ptr(x86::rax));
      EmitMoveAll(as, after, false);
    });
    EXPECT_TRUE(after == RegisterFile());
  });
}

INSTANTIATE_TEST_SUITE_P(AllSigns, EmulatedDot, testing::ValuesIn(kAllSigns),
                         [](const auto& test) { return std::string(jit::VnniInstruction(test.param)); });

/// A signal frame's XSAVE area: garbage, except for the kernel's words and XSTATE_BV.
class FakeFrame {
 public:
  explicit FakeFrame(uint64_t xstate_bv) {
    _fpx_sw_bytes software = {};
    software.magic1 = FP_XSTATE_MAGIC1;
    software.xstate_bv = 0b111;
    software.xstate_size = kBytes;
    const uint32_t magic2 = FP_XSTATE_MAGIC2;
    std::memcpy(&area_[464], &software, sizeof(software));
    std::memcpy(&area_[kBytes], &magic2, sizeof(magic2));
    std::memcpy(&area_[512], &xstate_bv, sizeof(xstate_bv));
    context_.uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(area_.data());
  }
  ucontext_t* context() { return &context_; }
  std::vector<uint8_t>& area() { return area_; }

 private:
  static constexpr size_t kBytes = 2048;  // beyond YMM_Hi128
  std::vector<uint8_t> area_ = RandomBytes(kBytes + 4, 11);
  ucontext_t context_ = {};
};

// Linux writes zeros for such components today, but the architecture promises only XSTATE_BV.
TEST(VectorState, LeavesTheInitialStateWithZerosAround) {
  FakeFrame frame(0);
  std::optional<VectorState> state = VectorState::Of(frame.context());
  ASSERT_TRUE(state);
  EXPECT_EQ(state->Read(3), Vector());
  Vector value;
  std::ranges::copy(RandomBytes(32, 12), value.bytes.begin());
  state->Write(3, value);
  EXPECT_EQ(state->Read(3), value);
  EXPECT_EQ(state->Read(2), Vector());
  EXPECT_EQ(frame.area()[512], 0b110);
}

TEST(VectorState, NeedsTheKernelsMagic) {
  EXPECT_TRUE(VectorState::Of(FakeFrame(0b111).context()));
  for (const size_t magic : {464, 2048}) {
    FakeFrame frame(0b111);
    frame.area()[magic] ^= 1;
    EXPECT_FALSE(VectorState::Of(frame.context())) << magic;
  }
}

// -----------------------------------------------------------------------------------------------------------
// AMX. This process never asks the kernel for the tiles, so these run emulated on CPUs with AMX too.

/// The operand of LDTILECFG.
class Config {
 public:
  Config& Tile(size_t tile, size_t rows, size_t colsb) {
    bytes_[0] = 1;
    bytes_[16 + 2 * tile] = static_cast<uint8_t>(colsb);
    bytes_[48 + tile] = static_cast<uint8_t>(rows);
    return *this;
  }
  Config& Byte(size_t index, uint8_t value) {
    bytes_[index] = value;
    return *this;
  }
  const std::array<uint8_t, 64>& bytes() const { return bytes_; }

 private:
  std::array<uint8_t, 64> bytes_ = {};
};

/// The code reads `config` when it runs.
void EmitLoadConfig(x86::Assembler& as, const Config& config) {
  as.mov(x86::rax, reinterpret_cast<uint64_t>(config.bytes().data()));
  as.ldtilecfg(x86::ptr(x86::rax));
}

/// A matrix in memory, in the layout that tile instructions address.
struct Strided {
  const uint8_t* data;
  int64_t stride_bytes;
};

/// Points R10 and R11·2^shift to `matrix`.
x86::Mem EmitAddress(x86::Assembler& as, const Strided& matrix, uint32_t shift = 0) {
  constexpr int32_t kDisplacement = 0x1238;
  as.mov(x86::r10, reinterpret_cast<uint64_t>(matrix.data) - kDisplacement);
  as.mov(x86::r11, matrix.stride_bytes >> shift);
  return x86::ptr(x86::r10, x86::r11, shift, kDisplacement);
}

// If the CPU has AMX it executes the instructions: these tests then compare the CPU with the scalar
// computations, and its own faults end the process.
class EmulatedAmx : public testing::Test {
 protected:
  static bool IsNative() {
    return intact_isa_available(INTACT_ISA_AMX_INT8) != 0;
  }  // asks for permission too
  void SetUp() override { (void)IsNative(); }
};

TEST_F(EmulatedAmx, MovesConfiguredRowsAndColumnsOnly) {
  const tests::CheckedEmulator emulator;
  StateWhoExecutes([] {
    std::mt19937 generator(1);
    for (size_t i = 0; i < 400; ++i) {
      const auto tile = static_cast<uint32_t>(i % 8);
      const auto shift = static_cast<uint32_t>(i / 8 % 4);
      const size_t rows = 1 + Draw(generator) % 16, colsb = 4 + 4 * (Draw(generator) % 16);
      const size_t in_stride = 8 * (8 + Draw(generator) % 8), out_stride = 8 * (8 + Draw(generator) % 8);
      const std::vector<uint8_t> in = RandomBytes((rows - 1) * in_stride + colsb, Draw(generator));
      const std::vector<uint8_t> old = RandomBytes(16 * out_stride, Draw(generator));
      std::vector<uint8_t> out = old;
      const Config config = Config().Tile(tile, rows, colsb);
      RunEmitted([&](x86::Assembler& as) {
        EmitLoadConfig(as, config);
        const x86::Mem source = EmitAddress(as, {in.data(), static_cast<int64_t>(in_stride)}, shift);
        i % 2 == 0 ? as.tileloadd(x86::tmm(tile), source) : as.tileloaddt1(x86::tmm(tile), source);
        as.tilestored(EmitAddress(as, {out.data(), static_cast<int64_t>(out_stride)}, shift), x86::tmm(tile));
        as.tilerelease();
      });
      std::vector<uint8_t> expected = old;
      for (size_t row = 0; row < rows; ++row) {
        std::copy_n(&in[row * in_stride], colsb, &expected[row * out_stride]);
      }
      ASSERT_EQ(out, expected) << "tile " << tile << ", " << rows << " rows of " << colsb << " bytes";
    }
  });
}

TEST_F(EmulatedAmx, TakesNegativeStridesAndNoStride) {
  const tests::CheckedEmulator emulator;
  const std::vector<uint8_t> in = RandomBytes(3 * 64, 1);
  const Config config = Config().Tile(0, 3, 64).Tile(1, 3, 64);
  std::vector<uint8_t> reversed(3 * 64), repeated(3 * 64);
  RunEmitted([&](x86::Assembler& as) {
    EmitLoadConfig(as, config);
    as.tileloadd(x86::tmm0, EmitAddress(as, {&in[2 * 64], -64}));
    as.mov(x86::r10, reinterpret_cast<uint64_t>(in.data()));
    as.tileloadd(x86::tmm1, x86::ptr(x86::r10));
    as.tilestored(EmitAddress(as, {reversed.data(), 64}), x86::tmm0);
    as.tilestored(EmitAddress(as, {repeated.data(), 64}), x86::tmm1);
    as.tilerelease();
  });
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_TRUE(std::equal(&reversed[row * 64], &reversed[row * 64] + 64, &in[(2 - row) * 64])) << row;
    EXPECT_TRUE(std::equal(&repeated[row * 64], &repeated[row * 64] + 64, in.data())) << row;
  }
}

TEST_F(EmulatedAmx, ZeroesAndRemembersItsConfiguration) {
  const tests::CheckedEmulator emulator;
  const std::vector<uint8_t> in = RandomBytes(16 * 64, 1);
  std::vector<uint8_t> zeroed(16 * 64, 1), untouched(16 * 64), reloaded(16 * 64, 1);
  std::array<uint8_t, 64> stored = {}, released = {1, 2, 3};
  const Config config = Config().Tile(4, 16, 64).Tile(7, 16, 64);
  RunEmitted([&](x86::Assembler& as) {
    EmitLoadConfig(as, config);
    as.tileloadd(x86::tmm4, EmitAddress(as, {in.data(), 64}));
    as.tileloadd(x86::tmm7, EmitAddress(as, {in.data(), 64}));
    as.tilezero(x86::tmm4);
    as.tilestored(EmitAddress(as, {zeroed.data(), 64}), x86::tmm4);
    as.tilestored(EmitAddress(as, {untouched.data(), 64}), x86::tmm7);
    EmitLoadConfig(as, config);  // zeroes all tiles
    as.tilestored(EmitAddress(as, {reloaded.data(), 64}), x86::tmm7);
    as.mov(x86::rax, reinterpret_cast<uint64_t>(stored.data()));
    as.sttilecfg(x86::ptr(x86::rax));
    as.tilerelease();
    as.mov(x86::rax, reinterpret_cast<uint64_t>(released.data()));
    as.sttilecfg(x86::ptr(x86::rax));
  });
  EXPECT_EQ(zeroed, std::vector<uint8_t>(16 * 64));
  EXPECT_EQ(untouched, in);
  EXPECT_EQ(reloaded, std::vector<uint8_t>(16 * 64));
  EXPECT_EQ(stored, config.bytes());
  EXPECT_EQ(released, (std::array<uint8_t, 64>{}));
}

/// One of TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD.
struct TileProduct {
  const char* name;
  asmjit::x86::Inst::Id id;
  bool a_is_signed, b_is_signed;
};

constexpr std::array<TileProduct, 4> kTileProducts = {{{"TDPBSSD", x86::Inst::kIdTdpbssd, true, true},
                                                       {"TDPBSUD", x86::Inst::kIdTdpbsud, true, false},
                                                       {"TDPBUSD", x86::Inst::kIdTdpbusd, false, true},
                                                       {"TDPBUUD", x86::Inst::kIdTdpbuud, false, false}}};

/// c[m,n] += Σ_k a[m,k]·b[k,n] on dense matrices. c is rows×columns of int32, a is rows×depth, and b has
/// AMX's order: b[k,n] is at k/4·4·columns + 4n + k%4.
void Multiply(const TileProduct& product, size_t rows, size_t columns, size_t depth,
              const std::vector<uint8_t>& a, const std::vector<uint8_t>& b, std::vector<uint32_t>* c) {
  const auto value = [](uint8_t byte, bool is_signed) {
    return is_signed ? static_cast<int8_t>(byte) : int{byte};
  };
  for (size_t m = 0; m < rows; ++m) {
    for (size_t n = 0; n < columns; ++n) {
      for (size_t k = 0; k < depth; ++k) {
        const uint8_t weight = b[k / 4 * 4 * columns + 4 * n + k % 4];
        (*c)[m * columns + n] += static_cast<uint32_t>(value(a[m * depth + k], product.a_is_signed) *
                                                       value(weight, product.b_is_signed));
      }
    }
  }
}

/// Multiplies random matrices in these tiles, and compares with Multiply().
void CheckTileProduct(const TileProduct& product, uint32_t tile_c, uint32_t tile_a, uint32_t tile_b,
                      uint32_t seed) {
  std::mt19937 generator(seed);
  const size_t rows = 1 + Draw(generator) % 16, columns = 1 + Draw(generator) % 16,
               quads = 1 + Draw(generator) % 16;
  const std::vector<uint8_t> a = RandomBytes(rows * quads * 4, Draw(generator));
  const std::vector<uint8_t> b = RandomBytes(quads * columns * 4, Draw(generator));
  std::vector<uint32_t> c(rows * columns);
  for (uint32_t& sum : c) sum = Draw(generator);
  std::vector<uint32_t> expected = c;
  Multiply(product, rows, columns, 4 * quads, a, b, &expected);

  const Config config =
      Config().Tile(tile_c, rows, 4 * columns).Tile(tile_a, rows, 4 * quads).Tile(tile_b, quads, 4 * columns);
  const Strided memory_c = {reinterpret_cast<uint8_t*>(c.data()), static_cast<int64_t>(4 * columns)};
  RunEmitted([&](x86::Assembler& as) {
    EmitLoadConfig(as, config);
    as.tileloadd(x86::tmm(tile_c), EmitAddress(as, memory_c));
    as.tileloadd(x86::tmm(tile_a), EmitAddress(as, {a.data(), static_cast<int64_t>(4 * quads)}));
    as.tileloadd(x86::tmm(tile_b), EmitAddress(as, {b.data(), static_cast<int64_t>(4 * columns)}));
    as.emit(product.id, x86::tmm(tile_c), x86::tmm(tile_a), x86::tmm(tile_b));
    as.tilestored(EmitAddress(as, memory_c), x86::tmm(tile_c));
    as.tilerelease();
  });
  EXPECT_EQ(c, expected) << product.name << " tmm" << tile_c << ", tmm" << tile_a << ", tmm" << tile_b << "; "
                         << rows << "×" << columns << ", " << quads << " quads";
}

TEST_F(EmulatedAmx, MultipliesInAllSignsAndTiles) {
  const tests::CheckedEmulator emulator;
  StateWhoExecutes([] {
    uint32_t seed = 0;
    for (uint32_t c = 0; c < 8; ++c) {
      for (uint32_t a = 0; a < 8; ++a) {
        for (uint32_t b = 0; b < 8; ++b) {
          if (c == a || c == b || a == b) continue;
          ++seed;
          CheckTileProduct(kTileProducts[seed % 4], c, a, b, seed);
        }
      }
    }
  });
}

TEST_F(EmulatedAmx, GivesEachThreadItsTiles) {
  const tests::CheckedEmulator emulator;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (uint32_t i = 0; i < 100; ++i) CheckTileProduct(kTileProducts[i % 4], t, 7, 6, 1000 * t + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The fault that `emit`'s code causes.
template <class Emit>
std::string FaultOf(const Emit& emit) {
  const tests::CheckedEmulator emulator;
  RunEmitted([&](x86::Assembler& as) {
    emit(as);
    as.tilerelease();
  });
  return ScopedEmulator::TakeFault();
}

std::string FaultOfConfig(const Config& config) {
  return FaultOf([&](x86::Assembler& as) { EmitLoadConfig(as, config); });
}

TEST_F(EmulatedAmx, RefusesBadConfigurations) {
  if (IsNative()) GTEST_SKIP() << "this CPU has AMX: it refuses by itself";
  EXPECT_EQ(FaultOfConfig(Config().Tile(0, 16, 64)), "");
  EXPECT_EQ(FaultOfConfig(Config().Byte(0, 2)), "LDTILECFG: #GP: palette 2; expected at most 1");
  EXPECT_EQ(FaultOfConfig(Config().Tile(3, 17, 64)),
            "LDTILECFG: #GP: tmm3 of 17 rows × 64 bytes; both must be 0, or at most 16 and 64");
  EXPECT_EQ(FaultOfConfig(Config().Tile(3, 16, 68)),
            "LDTILECFG: #GP: tmm3 of 16 rows × 68 bytes; both must be 0, or at most 16 and 64");
  EXPECT_EQ(FaultOfConfig(Config().Tile(3, 0, 64)),
            "LDTILECFG: #GP: tmm3 of 0 rows × 64 bytes; both must be 0, or at most 16 and 64");
  for (const size_t reserved : {2, 15, 32, 47, 56, 63}) {
    EXPECT_EQ(FaultOfConfig(Config().Tile(0, 1, 4).Byte(reserved, 1)),
              fmt::format("LDTILECFG: #GP: reserved byte {} of the configuration is not 0", reserved));
  }
}

TEST_F(EmulatedAmx, RefusesTilesThatDoNotMatch) {
  if (IsNative()) GTEST_SKIP() << "this CPU has AMX: it refuses by itself";
  EXPECT_EQ(FaultOf([](x86::Assembler& as) { as.tilezero(x86::tmm1); }),
            "TILEZERO: #UD: no tiles are configured");
  std::array<uint8_t, 64> memory = {};
  const Config six_bytes = Config().Tile(1, 1, 6);
  for (const bool is_load : {true, false}) {
    EXPECT_EQ(FaultOf([&](x86::Assembler& as) {
                EmitLoadConfig(as, six_bytes);
                const x86::Mem address = EmitAddress(as, {memory.data(), 64});
                is_load ? as.tileloadd(x86::tmm1, address) : as.tilestored(address, x86::tmm1);
              }),
              std::string(is_load ? "TILELOADD" : "TILESTORED") +
                  ": #UD: tmm1 has rows of 6 bytes, not a multiple of 4");
  }
  const Config config = Config().Tile(0, 2, 12).Tile(1, 2, 8).Tile(2, 2, 12).Tile(3, 3, 12);
  const auto product = [&](uint32_t c, uint32_t a, uint32_t b) {
    return FaultOf([&](x86::Assembler& as) {
      EmitLoadConfig(as, config);
      as.tdpbusd(x86::tmm(c), x86::tmm(a), x86::tmm(b));
    });
  };
  EXPECT_EQ(product(0, 1, 2), "");
  EXPECT_EQ(product(0, 1, 3), "TDPBUSD: #UD: shapes do not match: 2×12 bytes += 2×8 · 3×12");
  EXPECT_EQ(product(3, 1, 2), "TDPBUSD: #UD: shapes do not match: 3×12 bytes += 2×8 · 2×12");
  EXPECT_EQ(product(0, 1, 1), "TDPBUSD: #UD: the three tiles must differ");
  EXPECT_EQ(product(0, 1, 5), "TDPBUSD: #UD: tmm5 is not configured");
}

TEST(ScopedEmulator, TurnsAFaultIntoATestFailure) {
  EXPECT_NONFATAL_FAILURE(
      {
        const tests::CheckedEmulator emulator;
        RunEmitted([](x86::Assembler& as) { as.tilezero(x86::tmm1); });
      },
      "TILEZERO: #UD: no tiles are configured");
}

// -----------------------------------------------------------------------------------------------------------
// Signals of other origin

std::atomic<int> others = 0;

void SkipUd2(int /*signal*/, siginfo_t* /*info*/, void* context) {
  ++others;
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] += 2;
}

TEST(ScopedEmulator, LeavesOtherInstructionsToThePreviousHandler) {
  struct sigaction ours = {}, before = {}, after = {};
  ours.sa_sigaction = SkipUd2;
  ours.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGILL, &ours, &before), 0);
  const uint64_t count = ScopedEmulator::Count();
  {
    const tests::CheckedEmulator outer;
    const tests::CheckedEmulator inner;
    RunEmitted([](x86::Assembler& as) { as.ud2(); });
  }
  EXPECT_EQ(others, 1);
  EXPECT_EQ(ScopedEmulator::Count(), count);
  ASSERT_EQ(sigaction(SIGILL, &before, &after), 0);
  EXPECT_EQ(after.sa_sigaction, SkipUd2);
}

TEST(ScopedEmulatorDeathTest, EndsTheProcessAtAnUnknownInstruction) {
  EXPECT_EXIT(
      {
        const tests::CheckedEmulator emulator;
        RunEmitted([](x86::Assembler& as) { as.ud2(); });
      },
      testing::KilledBySignal(SIGILL), "");
}

}  // namespace
}  // namespace intact::emulator
