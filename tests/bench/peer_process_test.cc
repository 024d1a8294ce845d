// Peers in separate processes. A small program stands for their Python: it multiplies by plain loops, and may
// have a fault.
#include "bench/peers/peer_process.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/workload.h"
#include "bench/measure/measure.h"
#include "bench/peers/peers.h"
#include "core/types.h"
#include "jit/isa.h"
#include "tests/bench/bench_fixtures.h"
#include "tests/support/require_isas.h"
#include "tests/support/temp_path.h"

namespace intact::bench {
namespace {

using testing::HasSubstr;

/// `at_make` and `at_run`: Python statements, on one line each.
std::string Program(const std::string& at_make, const std::string& at_run) {
  return fmt::format(R"(#!/usr/bin/python3
import json, mmap, os, struct, sys
contenders = []
def answer(**values): print("\n" + json.dumps(values), flush=True)
answer(version="1.2", call_microseconds=0.5)
for line in sys.stdin:
    request = json.loads(line)
    if "make" in request:
        case = request["make"]
        data = mmap.mmap(os.open(request["memory"], os.O_RDWR), 0)
        {}
        contenders.append((data, case["m"], case["n"], case["k"], case["offsets"]))
        answer(contender=len(contenders) - 1, implementation=os.environ.get("HELD_TO", "all"))
        continue
    data, m, n, k, at = contenders[request["contender"]]
    a = data[at["a"]:at["a"] + m * k]
    b = struct.unpack(f"{{k * n}}b", data[at["b"]:at["b"] + k * n])
    c = [sum(x * y for x, y in zip(a[i * k:(i + 1) * k], b[j::n])) for i in range(m) for j in range(n)]
    {}
    data[at["c"]:at["c"] + 4 * m * n] = struct.pack(f"{{m * n}}i", *c)
    answer(microseconds=7.5 + (request["times"] == 3))
)",
                     at_make, at_run);
}

class PeerProcess : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "no /usr/bin/python3";
    if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<Peer> Start(const std::string& at_make = "pass", const std::string& at_run = "pass",
                              Seconds limit = Seconds(60)) {
    std::ofstream(path_) << Program(at_make, at_run);
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
    Result<std::unique_ptr<Peer>> peer = StartPeer("onnxruntime=" + path_, limit);
    EXPECT_TRUE(peer) << peer.error().message;
    return peer ? std::move(*peer) : nullptr;
  }

  static Case What() {
    Case c;
    c.shape = {3, 5, 64};
    c.peer = "onnxruntime";
    return c;
  }

  /// The result of Check() for a peer with these faults.
  std::string ResultOf(const std::string& at_make, const std::string& at_run) {
    const std::unique_ptr<Peer> peer = Start(at_make, at_run);
    if (peer == nullptr) return "not started";
    const Workload workload(What());
    return Check({What(), &workload, peer->Make(workload, What())}).result;
  }

  const std::string path_ = tests::TempPath();
};

TEST_F(PeerProcess, IsComparedWithTheReference) {
  EXPECT_EQ(ResultOf("pass", "pass"), kExact);
  EXPECT_EQ(ResultOf("print('a message of a library')", "print('{ another')"), kExact);
  EXPECT_EQ(ResultOf("print('a line', end='')", "print('{}')"), kExact);
  EXPECT_EQ(ResultOf("pass", "c[-1] += 1"), kWrong);
  EXPECT_EQ(ResultOf("pass", "c[0] = 0"), kWrong);
}

TEST_F(PeerProcess, FailuresAreReported) {
  EXPECT_EQ(ResultOf("answer(error='no such product'); continue", "pass"), "no such product");
  EXPECT_EQ(ResultOf("raise ValueError('not today')", "pass"), "ValueError: not today");
  EXPECT_EQ(ResultOf("sys.exit()", "pass"), "ended without a message");
  EXPECT_EQ(ResultOf("pass", "sys.exit()"), "ended without a message");
  EXPECT_EQ(ResultOf("pass", "os.kill(os.getpid(), 9)"), "ended by signal 9");
  EXPECT_EQ(ResultOf("pass", "answer(error='out of luck'); continue"), "out of luck");
  EXPECT_EQ(ResultOf("pass", "answer(microseconds='few'); continue"),
            "answers {\"microseconds\":\"few\"}; expected another value of \"microseconds\"");
  EXPECT_EQ(ResultOf("pass", "answer(error=3); continue"),
            "answers {\"error\":3}; expected another value of \"error\"");
}

TEST_F(PeerProcess, HasLimitedTime) {
  const std::unique_ptr<Peer> peer = Start("pass", "import time; time.sleep(1000)", Seconds(4));
  ASSERT_NE(peer, nullptr);
  const Workload workload(What());
  EXPECT_EQ(Check({What(), &workload, peer->Make(workload, What())}).result, "gave no answer in 4 s");
}

TEST_F(PeerProcess, WritesItsOwnC) {
  const std::unique_ptr<Peer> peer = Start("pass", "answer(microseconds=7.5); continue");
  ASSERT_NE(peer, nullptr);
  const Workload workload(What());
  Result<std::unique_ptr<Contender>> contender = peer->Make(workload, What());
  ASSERT_TRUE(contender) << contender.error().message;
  Bytes c = workload.NewC(INTACT_S32);
  const std::vector<uint8_t> unwritten(c.data(), c.data() + c.size());
  EXPECT_TRUE((*contender)->Run(workload.a(kS32), c.data()));
  EXPECT_TRUE(std::equal(unwritten.begin(), unwritten.end(), c.data())) << "zeros of new memory";
}

TEST_F(PeerProcess, IsNamedIfItFailsWhileItIsTimed) {
  const std::unique_ptr<Peer> peer = Start("pass", "request['with_c'] or sys.exit()");
  ASSERT_NE(peer, nullptr);
  const Workload workload(What());
  Case what = What();
  what.kernels = "of one kind";
  std::vector<Entrant> entrants;
  entrants.push_back({what, &workload, peer->Make(workload, what)});
  try {
    (void)MeasureRow(entrants, Seconds(0));
    FAIL() << "nothing failed";
  } catch (const ContenderFailed& error) {
    EXPECT_EQ(error.name(), "onnxruntime of one kind");
    EXPECT_STREQ(error.what(), "ended without a message");
  }
}

TEST_F(PeerProcess, EndsWithItsContenders) {
  const std::unique_ptr<Peer> peer = Start("open(sys.argv[0] + '.pid', 'w').write(str(os.getpid()))");
  ASSERT_NE(peer, nullptr);
  const Workload workload(What());
  int64_t process = 0;
  {
    const Result<std::unique_ptr<Contender>> contender = peer->Make(workload, What());
    std::ifstream(path_ + ".pid") >> process;
    EXPECT_TRUE(std::filesystem::exists(fmt::format("/proc/{}", process)));
  }
  std::filesystem::remove(path_ + ".pid");
  ASSERT_NE(process, 0);
  EXPECT_FALSE(std::filesystem::exists(fmt::format("/proc/{}", process)));
}

TEST_F(PeerProcess, MeasuresItsOwnTime) {
  const std::unique_ptr<Peer> peer = Start();
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(peer->Name(), "onnxruntime");
  EXPECT_EQ(peer->Version(), "1.2");
  EXPECT_EQ(peer->CallMicroseconds(), 0.5);
  const Workload workload(What());
  Result<std::unique_ptr<Contender>> contender = peer->Make(workload, What());
  ASSERT_TRUE(contender) << contender.error().message;
  EXPECT_EQ((*contender)->Microseconds(workload.a(kS32), nullptr, 3), 8.5);
  const bool is_outranked = std::ranges::any_of(core::kAllIsas, [](core::Isa isa) {
    return jit::HardwareIsas().Has(isa) && core::TraitsOf(isa).rank > core::TraitsOf(core::Isa::kAvx2).rank;
  });
  EXPECT_EQ((*contender)->Implementation(), is_outranked ? "avx2" : "all");
}

TEST_F(PeerProcess, ServesSeveralContenders) {
  const std::unique_ptr<Peer> peer = Start("if case['c_type'] == 'f32': answer(error='no f32'); continue");
  ASSERT_NE(peer, nullptr);
  Case c = What();
  const Workload workload(c);
  std::vector<Entrant> entrants;
  for (const Format& format : {kU8, kF32, kS32}) {
    c.format = format;
    entrants.push_back({c, &workload, peer->Make(workload, c)});
  }
  const Result<Row> row = MeasureRow(entrants, Seconds(0));
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->timings[0].result, kWrong) << "the program computes s32";
  EXPECT_EQ(row->timings[1].result, "no f32");
  EXPECT_EQ(row->timings[2].result, kExact);
  EXPECT_EQ(row->timings[2].microseconds, 7.5);
}

TEST_F(PeerProcess, MultipliesWeightsInBlocks) {
  const std::string run =
      "assert case['kernels'] == 'fast' and case['blocks'] == {'bits': 4, 'depth': 32}; "
      "x = struct.unpack(f'{m * k}f', data[at['a']:at['a'] + 4 * m * k]); "
      "first = [data[at['b'] + j * k // 2] & 15 for j in range(n)]; "
      "s = struct.unpack(f'{n}e', data[at['scales']:at['scales'] + 2 * n]); "
      "data[at['c']:at['c'] + 4 * m * n] = struct.pack(f'{m * n}f', *(x[i * k] * first[j] * s[j] for i in "
      "range(m) "
      "for j in range(n))); answer(microseconds=5); continue";
  const std::unique_ptr<Peer> peer = Start("pass", run);
  ASSERT_NE(peer, nullptr);
  Case c = What();
  c.shape = {2, 3, 32};
  c.shape.blocks = Blocks{};
  c.format = kByBlock;
  EXPECT_EQ(peer->Kernels(c), std::vector<std::string>{""});
  c.kernels = "fast";
  const Workload workload(c);
  const Result<std::unique_ptr<Contender>> contender = peer->Make(workload, c);
  ASSERT_TRUE(contender) << contender.error().message;
  EXPECT_EQ((*contender)->BlockScaleType(), INTACT_F32);
  std::vector<float> found(6, -1.0f), expected;
  EXPECT_TRUE((*contender)->Run(workload.a(c.format), reinterpret_cast<uint8_t*>(found.data())));
  const auto* const a = reinterpret_cast<const float*>(workload.a(c.format));
  for (size_t i = 0; i < 2; ++i) {
    for (size_t n = 0; n < 3; ++n) {
      const int code = workload.blocks()->b()[16 * n] & 15;
      const double scale = core::DecodeFloat(core::TraitsOf(INTACT_F16), workload.blocks()->scales()[n]);
      expected.push_back(static_cast<float>(double{a[32 * i]} * code * scale));
    }
  }
  EXPECT_EQ(found, expected);
}

TEST_F(PeerProcess, TakesWhatItsLibraryComputes) {
  const std::unique_ptr<Peer> peer = Start();
  ASSERT_NE(peer, nullptr);
  Case c = What();
  EXPECT_TRUE(peer->Takes(c));
  c.format = kByRow;
  EXPECT_FALSE(peer->Takes(c));
  c.shape.blocks = Blocks{};
  EXPECT_FALSE(peer->Takes(c));
  c.format = kByBlock;
  EXPECT_TRUE(peer->Takes(c));
  c = What();
  c.shape.batch = Batch{};
  EXPECT_FALSE(peer->Takes(c));
  c.shape = Shape::Of({4, 4, 8, 8, 3});
  EXPECT_FALSE(peer->Takes(c));
}

TEST_F(PeerProcess, HasANameOfItsOwn) {
  for (const bool is_first : {true, false}) {
    std::unique_ptr<Peer> peer = Start();
    ASSERT_NE(peer, nullptr);
    ASSERT_EQ(FindPeer("onnxruntime") == nullptr, is_first);
    const std::optional<Error> error = AddPeer(std::move(peer));
    ASSERT_EQ(error.has_value(), !is_first);
    if (error) {
      EXPECT_EQ(error->message, "a second peer is called onnxruntime");
    }
  }
}

TEST(StartPeer, RefusesInOneLine) {
  const auto why = [](const std::string& option) {
    const Result<std::unique_ptr<Peer>> peer = StartPeer(option);
    return peer ? "started" : peer.error().message;
  };
  for (const char* unknown : {"", "mkl", "onednn", "onednn=", "fbgemm=", "ggml", "ggml="}) {
    EXPECT_EQ(why(unknown),
              fmt::format("--peer {}: is unknown; expected onednn=LIBRARY, onnxruntime[=PYTHON], "
                          "fbgemm[=PYTHON] or ggml=FOLDER",
                          unknown));
  }
  EXPECT_EQ(why("fbgemm=/no/python"), "--peer fbgemm=/no/python: cannot be run: No such file or directory");
  EXPECT_EQ(why("fbgemm=/bin/true"), "--peer fbgemm=/bin/true: ended without a message");
  if (!std::filesystem::exists("/usr/bin/python3")) return;
  EXPECT_EQ(why("onednn=/no/libdnnl.so.3"),
            "--peer onednn=/no/libdnnl.so.3: /no/libdnnl.so.3: cannot open shared object file: No such file "
            "or directory");
  EXPECT_THAT(why("onednn=/lib/x86_64-linux-gnu/libc.so.6"), HasSubstr("undefined symbol: dnnl_version"));
}

}  // namespace
}  // namespace intact::bench
