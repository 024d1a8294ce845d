// Pack files: a plan saved on one ISA computes the same bytes on any other. Files that are not valid pack
// files are refused.
#include "kernels/weights/pack_file.h"
#include "core/isas.h"
#include "core/types.h"
#include "reference/models/lowering.h"
#include "reference/models/operands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "support/random.h"
#include "tests/support/emulated_isas.h"
#include "tests/support/expect_model.h"
#include "tests/support/in_child.h"
#include "tests/support/pack_image.h"
#include "tests/support/plan.h"
#include "tests/support/require_isas.h"
#include "tests/support/temp_path.h"
#include "verify/explain/audit.h"
#include "verify/targets/guarded_buffer.h"

namespace intact::tests {
namespace {

using testing::HasSubstr;
using verify::Problem;
using Bytes = std::vector<uint8_t>;

const auto* const kEmulatedIsas = ::testing::AddGlobalTestEnvironment(new EmulatedIsas);

// Every output type, kind of bias and scale, types of activations, modes and activation ranges.
constexpr const char* kProblems[] = {
    "gemm u8s8s32 m=70 n=37 k=131 za=3 bias=s32",
    "gemm s8s8s32 m=5 n=1 k=1 za=-128",
    "gemm s8s8u8 m=33 n=50 k=67 za=7 zc=9 bias=f32 scale=channel act=relu fill=laplace",
    "gemm u8s8s8 m=33 n=16 k=64 za=255 zc=-128 bias=s32 act=clamp wmax=128",
    "gemm u8s8f32 m=9 n=100 k=300 bias=f32 scale=channel fill=student",
    "gemm u8s8s32 m=70 n=20 k=1100 arange=127 fill=bound",
    "gemm u8s8s32 m=200 n=20 k=70 arange=127 fill=stray",
    "gemm s8s8u8 m=70 n=20 k=400 za=-99 arange=30 rangecheck=unchecked",
    "gemm u8s8s32 m=30 n=20 k=70 fill=bait mode=saturating",
    "gemm u8u8s32 m=30 n=20 k=70 zb=128",
    "gemm s8u8u8 m=30 n=37 k=70 za=-9 zb=3 zbper=channel zc=128 bias=f32",
    "gemm s8s8f32 m=30 n=37 k=71 zb=-7 bias=s32",
    "gemm u8u8s32 m=30 n=20 k=70 zb=77 fill=bait mode=saturating",
    "gemm u8s8u8 m=30 n=37 k=70 zc=9 bias=f32 act=relu res=s8 zres=-9",
    "gemm s8u8s8 m=30 n=37 k=70 zb=9 res=u8 zres=200 fill=laplace",
    "gemm u8s8f32 m=30 n=37 k=70 scale=channel res=f32",
};

// The weights of 3 columns with up to 64 depths: 16 quads of 4 columns, and a line.
constexpr size_t kNarrowBytes = 16 * 16 + 64;

class PackFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Bytes Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static void Write(const std::string& path, const Bytes& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }

  // Creates a plan of `problem`, which must be possible.
  static Plan Create(const Problem& problem) {
    Result<Plan> plan = CreatePlan(problem, verify::MaterializeGemm(problem));
    EXPECT_TRUE(plan) << plan.error().message;
    return plan ? std::move(*plan) : nullptr;
  }
  static Plan Create(const char* line) { return Create(Parsed(line)); }

  // Without schedules, so that it is the same on every machine.
  Bytes Image(const char* line) {
    const Plan plan = Create(line);
    EXPECT_EQ(intact_gemm_save(plan.get(), path_.c_str()), INTACT_OK) << intact_last_error();
    return WithoutSchedules(Read(path_));
  }

  void ExpectRefused(const std::string& path, const char* words) {
    const Result<Plan> plan = LoadPlan(path, INTACT_ISA_ANY);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(plan.error().message, HasSubstr(words));
    EXPECT_THAT(plan.error().message, HasSubstr(path));
  }

  size_t FilesInFolder() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  const std::string folder_ = tests::TempPath();
  const std::string path_ = folder_ + "/pack";
};

Bytes Output(const Plan& plan, const reference::Gemm& gemm) {
  const Result<Bytes> output = RunPlan(plan, gemm);
  EXPECT_TRUE(output) << output.error().message;
  return output ? *output : Bytes();
}

TEST_F(PackFile, ComputesTheSameBytesOnEveryIsa) {
  int pairs = 0;
  for (const char* line : kProblems) {
    Bytes first_image;
    for (const intact_isa saver : core::kIsaLadder) {
      if (intact_isa_available(saver) == 0) continue;
      Problem problem = Parsed(line);
      problem.isa = saver;
      const reference::Gemm gemm = verify::MaterializeGemm(problem);
      ASSERT_EQ(intact_gemm_save(Create(problem).get(), path_.c_str()), INTACT_OK) << intact_last_error();
      const Bytes image = WithoutSchedules(Read(path_));
      if (first_image.empty()) first_image = image;
      EXPECT_EQ(image, first_image) << "the file depends on the ISA";
      for (const intact_isa loader : core::kIsaLadder) {
        if (intact_isa_available(loader) == 0) continue;
        SCOPED_TRACE(problem.ToString() + " loaded on " + intact_isa_name(loader));
        const Result<Plan> loaded = LoadPlan(path_, loader);
        ASSERT_TRUE(loaded) << loaded.error().message;
        problem.isa = loader;
        const Plan created = Create(problem);
        EXPECT_EQ(Output(*loaded, gemm), Output(created, gemm));
        const auto model = verify::ExpectedModel(gemm, loader);
        EXPECT_EQ(Output(*loaded, gemm), reference::Outputs(gemm, reference::Accumulators(gemm, model)));
        problem.isa = saver;
        ++pairs;
      }
    }
  }
  std::cout << pairs << " pairs of ISAs and problems\n";
  EXPECT_GT(pairs, 0);
}

TEST_F(PackFile, KeepsTheCertificateAndSavesAsItWasLoaded) {
  for (const char* line : kProblems) {
    const Plan created = Create(line);
    ASSERT_EQ(intact_gemm_save(created.get(), path_.c_str()), INTACT_OK);
    const Result<Plan> loaded = LoadPlan(path_, INTACT_ISA_ANY);
    ASSERT_TRUE(loaded) << loaded.error().message;
    intact_certificate expected = INTACT_CERTIFICATE_INIT;
    intact_certificate actual = INTACT_CERTIFICATE_INIT;
    ASSERT_EQ(intact_gemm_certificate(created.get(), &expected), INTACT_OK);
    ASSERT_EQ(intact_gemm_certificate(loaded->get(), &actual), INTACT_OK);
    EXPECT_EQ(std::memcmp(&actual, &expected, sizeof(actual)), 0) << line;
    std::vector<intact_panel_certificate> panels(static_cast<size_t>(2 * expected.panels));
    ASSERT_EQ(intact_gemm_panel_certificates(created.get(), 0, expected.panels, panels.data()), INTACT_OK);
    ASSERT_EQ(intact_gemm_panel_certificates(loaded->get(), 0, expected.panels, &panels[panels.size() / 2]),
              INTACT_OK);
    for (size_t i = 0; i < panels.size() / 2; ++i) {
      EXPECT_EQ(panels[i].failing_pairs, panels[panels.size() / 2 + i].failing_pairs);
      EXPECT_EQ(panels[i].safe_depth_quads, panels[panels.size() / 2 + i].safe_depth_quads);
    }
    const std::string again = path_ + ".again";
    ASSERT_EQ(intact_gemm_save(loaded->get(), again.c_str()), INTACT_OK);
    EXPECT_EQ(Read(again), Read(path_)) << line;
  }
}

TEST_F(PackFile, OutlivesItsName) {
  const Problem problem = Parsed(kProblems[0]);
  const reference::Gemm gemm = verify::MaterializeGemm(problem);
  const Bytes expected = Output(Create(problem), gemm);
  (void)Image(kProblems[0]);
  const Result<Plan> loaded = LoadPlan(path_, INTACT_ISA_ANY);
  ASSERT_TRUE(loaded) << loaded.error().message;
  std::filesystem::remove(path_);
  EXPECT_EQ(Output(*loaded, gemm), expected);
}

TEST_F(PackFile, CrossesProcessesUnderMaxIsa) {
  if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
  const std::string line = kProblems[0];
  const reference::Gemm gemm = verify::MaterializeGemm(Parsed(line));
  const Bytes expected = reference::Outputs(gemm, reference::Accumulators(gemm, reference::Model::kExact));
  const auto child = [&](const std::string& action) {
    const std::string command =
        "INTACT_MAX_ISA=avx2 '" INTACT_CHILD "' " + action + " '" + path_ + "' '" + line + "'";
    return std::system(command.c_str());
  };
  ASSERT_EQ(child("save"), 0);
  const Result<Plan> loaded = LoadPlan(path_, INTACT_ISA_ANY);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(Output(*loaded, gemm), expected);

  (void)Image(line.c_str());
  ASSERT_EQ(child("run"), 0);
  EXPECT_EQ(Read(path_ + ".out"), expected);
}

// ----- refusals --------------------------------------------------------------------------------------------

TEST_F(PackFile, RefusesWhatIsNotThere) {
  ExpectRefused(folder_ + "/missing", "No such file");
  ExpectRefused(folder_, "not a file");
  Write(path_, {});
  ExpectRefused(path_, "empty");
}

TEST_F(PackFile, RefusesForeignFiles) {
  Write(path_, Bytes(5000, 'x'));
  ExpectRefused(path_, "not a pack file");
  Bytes image = Image(kProblems[0]);
  image[8] = 1;
  Write(path_, image);
  ExpectRefused(path_, "format version 1; expected 10");
}

TEST_F(PackFile, RefusesEveryTruncationAndEveryExcess) {
  const Bytes image = Image("gemm u8s8u8 m=1 n=3 k=5 bias=f32");
  for (size_t size = 1; size < image.size(); ++size) {
    Write(path_, Bytes(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size)));
    ExpectRefused(path_, "truncated");
    if (HasFailure()) return;
  }
  Bytes longer = image;
  longer.resize(image.size() + 64);
  Write(path_, longer);
  ExpectRefused(path_, "too long");
}

TEST_F(PackFile, RefusesEveryFlippedBit) {
  const Bytes image = Image("gemm u8s8u8 m=1 n=3 k=5 bias=f32");
  Result<verify::GuardedBuffer> buffer = verify::GuardedBuffer::Allocate(image.size());
  ASSERT_TRUE(buffer);
  const auto data = buffer->data();
  std::copy(image.begin(), image.end(), data.begin());
  for (size_t bit = 0; bit < 8 * image.size(); ++bit) {
    data[bit / 8] = static_cast<uint8_t>(data[bit / 8] ^ (1u << bit % 8));
    intact_gemm* gemm = nullptr;
    ASSERT_EQ(intact_gemm_load_memory(data.data(), data.size(), INTACT_ISA_ANY, &gemm),
              INTACT_INVALID_ARGUMENT)
        << "bit " << bit;
    ASSERT_EQ(gemm, nullptr);
    data[bit / 8] = image[bit / 8];
  }
}

TEST_F(PackFile, RefusesMisalignedMemory) {
  alignas(64) uint8_t bytes[512] = {};
  intact_gemm* gemm = nullptr;
  EXPECT_EQ(intact_gemm_load_memory(bytes + 8, 500, INTACT_ISA_ANY, &gemm), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("aligned to 64"));
  EXPECT_EQ(intact_gemm_load_memory(bytes, 0, INTACT_ISA_ANY, &gemm), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("truncated"));
  EXPECT_EQ(intact_gemm_load_memory(bytes, 500, 9, &gemm), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("max_isa is 9"));
}

TEST_F(PackFile, LeavesNothingBehindWhereItCannotWrite) {
  const Plan plan = Create(kProblems[0]);
  const std::string nowhere = folder_ + "/missing/pack";
  EXPECT_EQ(intact_gemm_save(plan.get(), nowhere.c_str()), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr(nowhere));
  EXPECT_EQ(FilesInFolder(), 0u);

  std::filesystem::create_directories(path_ + "/full");  // a file cannot replace a directory
  EXPECT_EQ(intact_gemm_save(plan.get(), path_.c_str()), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("cannot be written"));
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(PackFile, DoesNotReplaceWhatIsNoFile) {
  std::filesystem::create_directories(folder_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(intact_gemm_save(Create(kProblems[0]).get(), path_.c_str()), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("cannot be written: it exists and is not a regular file"));
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(PackFile, KeepsTheOldFileIfTheDiskIsFull) {
  const Bytes before = Image(kProblems[1]);
  const Plan plan = Create(kProblems[0]);
  rlimit saved{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &saved), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);  // the write fails instead
  rlimit small = saved;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const intact_status status = intact_gemm_save(plan.get(), path_.c_str());
  const std::string message = intact_last_error();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &saved), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status, INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("cannot be written"));
  EXPECT_EQ(Read(path_), before);
  EXPECT_EQ(FilesInFolder(), 1u);
}

mode_t RightsOf(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

TEST_F(PackFile, HasTheRightsThatTheCallerWants) {
  const Plan plan = Create(kProblems[0]);
  std::filesystem::create_directories(folder_);
  const mode_t saved = umask(0027);
  const intact_status status = intact_gemm_save(plan.get(), path_.c_str());
  umask(saved);
  ASSERT_EQ(status, INTACT_OK) << intact_last_error();
  EXPECT_EQ(RightsOf(path_), 0640u) << "a new file has the rights that the umask permits";
  ASSERT_EQ(chmod(path_.c_str(), 0604), 0);
  ASSERT_EQ(intact_gemm_save(plan.get(), path_.c_str()), INTACT_OK) << intact_last_error();
  EXPECT_EQ(RightsOf(path_), 0604u) << "a replaced file keeps its rights";
  EXPECT_EQ(FilesInFolder(), 1u);
}

// A file that replaces a program does not get its set-user-id rights.
TEST_F(PackFile, DoesNotKeepAProgramsRights) {
  const Plan plan = Create(kProblems[0]);
  Write(path_, {1});
  ASSERT_EQ(chmod(path_.c_str(), 06755), 0);
  ASSERT_EQ(intact_gemm_save(plan.get(), path_.c_str()), INTACT_OK) << intact_last_error();
  EXPECT_EQ(RightsOf(path_), 0755u);
}

// The name of the partial file must not be longer.
TEST_F(PackFile, MayHaveTheLongestName) {
  const Bytes image = Image(kProblems[0]);
  const Plan plan = Create(kProblems[0]);
  for (const size_t size : {240, 245, 255}) {
    const std::string path = folder_ + "/" + std::string(size, 'x');
    for (const char* when : {"new", "replaced"}) {
      ASSERT_EQ(intact_gemm_save(plan.get(), path.c_str()), INTACT_OK) << size << intact_last_error();
      EXPECT_EQ(WithoutSchedules(Read(path)), image) << when;
      Write(path, {1});
    }
  }
}

TEST_F(PackFile, IsNotBlamedWhereThereIsNoRoomForIt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer wants all addresses";
#endif
  Write(path_, {1});
  std::filesystem::resize_file(path_, uint64_t{1} << 36);  // the disk holds only a byte of it
  const std::string said = InChild([&]() -> std::string {
    const rlimit room = {uint64_t{1} << 35, uint64_t{1} << 35};
    if (setrlimit(RLIMIT_AS, &room) != 0) return "no limit";
    intact_gemm* gemm = nullptr;
    intact_conv* conv = nullptr;
    const intact_status status = intact_gemm_load(path_.c_str(), INTACT_ISA_ANY, &gemm);
    const std::string message = intact_last_error();
    return std::string(intact_status_name(status)) + ": " + message + ", " +
           intact_status_name(intact_conv_load(path_.c_str(), INTACT_ISA_ANY, &conv));
  });
  EXPECT_EQ(said, std::string(intact_status_name(INTACT_OUT_OF_MEMORY)) + ": intact_gemm_load: path '" +
                      path_ + "' cannot be read: Cannot allocate memory, " +
                      intact_status_name(INTACT_OUT_OF_MEMORY));
}

TEST_F(PackFile, FollowsSymbolicLinks) {
  const Bytes image = Image(kProblems[0]);
  const Plan plan = Create(kProblems[0]);
  std::filesystem::create_directories(folder_ + "/there");
  std::filesystem::create_symlink("there/pack", folder_ + "/link");
  const std::string link = folder_ + "/link";
  for (const char* when : {"new", "replaced"}) {
    ASSERT_EQ(intact_gemm_save(plan.get(), link.c_str()), INTACT_OK) << intact_last_error();
    EXPECT_TRUE(std::filesystem::is_symlink(link)) << when;
    EXPECT_EQ(Read(folder_ + "/there/pack"), image) << when;
    Write(folder_ + "/there/pack", {1});
  }
  std::filesystem::create_symlink("loop", folder_ + "/loop");
  EXPECT_EQ(intact_gemm_save(plan.get(), (folder_ + "/loop").c_str()), INTACT_INVALID_ARGUMENT);
  EXPECT_THAT(intact_last_error(), HasSubstr("Too many levels of symbolic links"));
}

// A signal ends a process that writes a file beyond the limit.
TEST_F(PackFile, LeavesNothingBehindWhenTheProcessIsKilled) {
  const Plan plan = Create(kProblems[0]);
  std::filesystem::create_directories(folder_);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit small = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &small);
    signal(SIGXFSZ, SIG_DFL);
    (void)intact_gemm_save(plan.get(), path_.c_str());
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it was not killed";
  EXPECT_EQ(FilesInFolder(), 0u);
}

// ----- schedules -------------------------------------------------------------------------------------------

// Saved, changed, sealed and loaded, on an ISA without VNNI.
class SavedSchedules : public PackFile {
 protected:
  void SetUp() override {
    if (intact_isa_available(INTACT_ISA_AVX2) == 0) INTACT_SKIP_ISA("avx2");
    PackFile::SetUp();
    Problem problem = Parsed("gemm u8s8s32 m=70 n=37 k=531 za=3 fill=laplace");
    problem.isa = INTACT_ISA_AVX2;
    gemm_ = verify::MaterializeGemm(problem);
    (void)Image(problem.ToString().c_str());
    image_ = Read(path_);
  }
  // The first schedule that was made, and not only estimated.
  size_t MadeSchedule() const {
    for (const size_t at : SchedulesIn(image_)) {
      if (Field<int64_t>(image_, at + kOrderBytesAt) != 0) return at;
    }
    ADD_FAILURE() << "no schedule was saved";
    return 0;
  }
  void ExpectFault(Bytes image, const char* words) {
    Seal(image);
    Write(path_, image);
    const Result<Plan> plan = LoadPlan(path_, INTACT_ISA_AVX2);
    ASSERT_FALSE(plan) << words;
    EXPECT_EQ(plan.error().status, INTACT_INVALID_ARGUMENT);
    EXPECT_THAT(plan.error().message, HasSubstr(words));
    EXPECT_EQ(std::ranges::count(plan.error().message, '\n'), 0);
  }

  reference::Gemm gemm_;
  Bytes image_;
};

TEST_F(SavedSchedules, FaultsAreRefused) {
  const size_t order = MadeSchedule() + kOrderAt;
  ASSERT_GT(order, kOrderAt);
  // Numbers of groups of 8, 7, …, 1 items, then the items, a byte each: fewer than 256 in a strip.
  size_t items = 0;
  size_t first_group = 0;
  for (size_t i = 0; i < 8; ++i) {
    items += (8 - i) * image_[order + i];
    if (first_group == 0 && image_[order + i] != 0) first_group = 8 - i;
  }
  ASSERT_GT(items, first_group);
  ASSERT_GT(first_group, 1u);
  const size_t first = order + 8;
  const auto with = [&](size_t at, uint8_t value) {
    Bytes image = image_;
    image[at] = value;
    return image;
  };
  ExpectFault(with(first, image_[first + 1]), "repeats an item");
  ExpectFault(with(first, 255), "has an item that the weights do not have");
  ExpectFault(with(order + 7, static_cast<uint8_t>(image_[order + 7] + 1)),
              "has another number of items than the weights");
  ExpectFault(with(first - 8, 255), "has another number of items than the weights");
  // The weights change, so that the sums of the first group leave int16, or an item is gone.
  int overloaded = 0;
  int other = 0;
  for (size_t at = kWeightsAt; at < kWeightsAt + 400; at += 3) {
    for (const uint8_t weight : Bytes{0x7f, 0x80, 0x00}) {
      if (image_[at] == weight) continue;
      Bytes image = with(at, weight);
      Seal(image);
      Write(path_, image);
      const Result<Plan> plan = LoadPlan(path_, INTACT_ISA_AVX2);
      if (plan) {  // the order suits these weights too
        const Result<Plan> portable = LoadPlan(path_, INTACT_ISA_PORTABLE);
        ASSERT_TRUE(portable);
        EXPECT_EQ(Output(*plan, gemm_), Output(*portable, gemm_));
        continue;
      }
      const bool leaves = plan.error().message.find("has a group that can leave int16") != std::string::npos;
      ++(leaves ? overloaded : other);
    }
  }
  EXPECT_GT(overloaded, 10);
  EXPECT_GT(other, 10);
}

// ----- fuzz ------------------------------------------------------------------------------------------------

constexpr size_t kLinearEnd = kInputChannelsAt;  // fields of convolutions follow

// Changes a few bytes to random or special values. Most are in the header, or in the part of it that every
// file uses.
void Mutate(std::span<uint8_t> image, support::Random& random) {
  constexpr uint8_t kTelling[] = {0, 1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 127, 128, 254, 255};
  for (int64_t changes = random.Integer(1, 4); changes > 0; --changes) {
    constexpr int64_t kEnds[] = {kLinearEnd, kLinearEnd, kHeaderBytes};
    const int64_t where = random.Integer(0, 3);
    const int64_t end = where < std::ssize(kEnds) ? kEnds[where] : std::ssize(image);
    const auto at = static_cast<size_t>(random.Integer(int64_t{kCoveredFrom}, end - 1));
    image[at] = random.Integer(0, 1) == 0 ? kTelling[random.Integer(0, std::ssize(kTelling) - 1)]
                                          : static_cast<uint8_t>(random.Next());
  }
}

// Runs a plan of a mutated image, with buffers that end at unmapped pages. In INTACT_EXACT mode, the portable
// plan of the image must compute the same bytes; their number is added to `compared`.
void RunMutant(const intact_gemm* plan, std::span<const uint8_t> image, int64_t* compared) {
  constexpr int64_t kRows = 26;
  const auto n = Field<int64_t>(image, kNAt);
  const auto k = Field<int64_t>(image, kKAt);
  const int64_t element = core::BytesOf(static_cast<intact_type>(Field<int32_t>(image, kCTypeAt)));
  const auto source_type = static_cast<intact_type>(Field<int32_t>(image, kASourceTypeAt));
  const int64_t a_element = source_type == INTACT_TYPE_NONE ? 1 : core::BytesOf(source_type);
  const auto a = verify::GuardedBuffer::Allocate(static_cast<size_t>(kRows * k * a_element));
  const auto c = verify::GuardedBuffer::Allocate(static_cast<size_t>(kRows * n * element));
  const auto residual_type = static_cast<intact_type>(Field<int32_t>(image, kResidualTypeAt));
  const auto residual =
      verify::GuardedBuffer::Allocate(static_cast<size_t>(kRows * n * core::BytesOf(residual_type)));
  ASSERT_TRUE(a && c && residual);
  intact_gemm_args args = INTACT_GEMM_ARGS_INIT;
  args.m = kRows;
  args.a = a->data().data();
  args.c = c->data().data();
  FillActivations(image, a->data());
  if (residual_type != INTACT_TYPE_NONE) args.residual = residual->data().data();
  args.threads = 1;
  const std::vector<float> scales(kRows, 1.0f);
  const auto quantization = Field<int32_t>(image, kAQuantizationAt);
  const bool takes_scales =
      quantization == INTACT_QUANTIZATION_ROWS || quantization == INTACT_QUANTIZATION_TENSOR;
  if (takes_scales && Field<int32_t>(image, kCTypeAt) != INTACT_S32) args.a_scales = scales.data();
  ASSERT_EQ(intact_gemm_run(plan, &args), INTACT_OK) << intact_last_error();
  EXPECT_TRUE(c->FrontIntact());
  if (Field<int32_t>(image, kModeAt) == INTACT_EXACT) {
    intact_gemm* loaded = nullptr;
    ASSERT_EQ(intact_gemm_load_memory(image.data(), image.size(), INTACT_ISA_PORTABLE, &loaded), INTACT_OK)
        << intact_last_error();
    const Plan portable(loaded);
    Bytes expected(c->data().size());
    args.c = expected.data();
    ASSERT_EQ(intact_gemm_run(loaded, &args), INTACT_OK) << intact_last_error();
    EXPECT_TRUE(std::ranges::equal(c->data(), expected));
    *compared += std::ssize(expected);
  }
  std::vector<intact_failing_pair> pairs(8);
  int64_t written = 0;
  EXPECT_EQ(intact_gemm_failing_pairs(plan, 0, 8, pairs.data(), &written), INTACT_OK);
}

TEST_F(PackFile, SurvivesMutationsWithRightChecksums) {
  constexpr int kMutantsEach = 3000;
  int accepted = 0;
  int refused = 0;
  int64_t compared = 0;
  for (const char* line :
       {"gemm u8s8u8 m=1 n=3 k=5 bias=f32", "gemm s8s8s32 m=1 n=20 k=70 bias=s32 arange=127 za=-9",
        "gemm u8s8f32 m=1 n=16 k=64 bias=f32 scale=channel mode=saturating",
        "gemm s8u8u8 m=1 n=9 k=66 zb=200 zbper=channel bias=f32",
        "gemm u8s8s8 m=1 n=9 k=66 bias=f32 res=u8 zres=9",
        "gemm u8s8s32 m=1 n=20 k=70 isa=avx2 fill=laplace"}) {
    (void)Image(line);
    const Bytes image = Read(path_);
    Result<verify::GuardedBuffer> buffer = verify::GuardedBuffer::Allocate(image.size());
    ASSERT_TRUE(buffer);
    const auto data = buffer->data();
    support::Random random(7, 0, image.size());
    for (int i = 0; i < kMutantsEach; ++i) {
      std::copy(image.begin(), image.end(), data.begin());
      Mutate(data, random);
      Seal(data);
      intact_gemm* gemm = nullptr;
      const intact_isa isa = core::kIsaLadder[static_cast<size_t>(i) % core::kIsaLadder.size()];
      const intact_status status = intact_gemm_load_memory(data.data(), data.size(), isa, &gemm);
      const Plan plan(gemm);
      if (status == INTACT_OK) {
        ++accepted;
        RunMutant(gemm, data, &compared);
      } else {
        ++refused;
        ASSERT_EQ(gemm, nullptr);
        ASSERT_STRNE(intact_last_error(), "");
      }
      if (HasFatalFailure()) return;
    }
  }
  std::cout << accepted << " mutants accepted and run, " << refused << " refused\n";
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
  EXPECT_GT(compared, 100000);
}

// A wrong value for a field of an image.
struct Spoilt {
  const char* line;
  size_t at;
  uint32_t value;
  const char* words;
};

constexpr const char* kU8 = "gemm u8s8u8 m=1 n=3 k=5 bias=f32";
constexpr const char* kS32 = "gemm u8s8s32 m=1 n=3 k=5 bias=s32";

Bytes Forged(Bytes image, size_t at, uint32_t value) {
  std::memcpy(&image[at], &value, sizeof(value));
  Seal(image);
  return image;
}

TEST_F(PackFile, RefusesFieldsOutOfRange) {
  for (const Spoilt& c : {
           Spoilt{kU8, kNAt, 0, "n or k"},
           Spoilt{kU8, kNAt + 4, 1, "n or k"},
           Spoilt{kU8, kKAt, 0, "n or k"},
           Spoilt{kU8, kATypeAt, 3, "a_type is 3"},
           Spoilt{kU8, kBTypeAt, 3, "b_type is 3"},
           Spoilt{kU8, kBTypeAt, 0, "b_type is 0"},
           Spoilt{kU8, kCTypeAt, 9, "c_type is 9"},
           Spoilt{kU8, kCTypeAt, 0xffffffff, "c_type is -1"},
           Spoilt{kU8, kCTypeAt, INTACT_S32, "scales are given for s32 output"},
           Spoilt{kU8, kModeAt, 2, "mode is 2"},
           Spoilt{kU8, kVectorsAt, 0x4000000d, "flag"},
           Spoilt{kU8, kVectorsAt, 0x8000000d, "size"},  // a lookup table
           Spoilt{kU8, kVectorsAt, 0x9, "size"},
           Spoilt{kU8, kVectorsAt, 0xf, "size"},
           Spoilt{kU8, kRangeCheckAt, 2, "range_check is 2"},
           Spoilt{kU8, kOverflowAt, 2, "overflow is 2"},
           Spoilt{kU8, kAZeroPointAt, 256, "a_zero_point is 256"},
           Spoilt{kU8, kAZeroPointAt, 0x7fffffff, "a_zero_point is 2147483647"},
           Spoilt{kU8, kCZeroPointAt, 256, "c_zero_point is 256"},
           Spoilt{kU8, kAMinAt, 1000, "a_min is 1000 and a_max is 0"},
           Spoilt{kU8, kAMaxAt, 256, "a_min is 0 and a_max is 256"},
           Spoilt{kU8, kActivationAt, 3, "activation is 3"},
           Spoilt{kU8, kAQuantizationAt, 9, "a_quantization is 9"},
           Spoilt{kU8, kASourceTypeAt, INTACT_F32, "a_source_type is 4"},
           Spoilt{kU8, kClampMinAt, 0x7fc00000, "clamp_min is nan"},
           Spoilt{kU8, kClampMaxAt, 0x7fc00000, "clamp_max is nan"},
           Spoilt{kU8, kClampMinAt, 0x43800000, "clamp_min is 256"},   // above clamp_max
           Spoilt{kU8, kClampMaxAt, 0xc3800000, "clamp_max is -256"},  // below clamp_min
           Spoilt{kU8, kSchedulesAt, 1000, "schedules or schedule_bytes is out of range"},
           Spoilt{kU8, kSchedulesAt + 4, 0x80000000, "schedules or schedule_bytes is out of range"},
           Spoilt{kU8, kScheduleBytesAt + 4, 0x80000000, "schedules or schedule_bytes is out of range"},
           Spoilt{kU8, kScheduleBytesAt, 1 << 20, "size"},
           Spoilt{kU8, kResidualTypeAt, 3, "residual_type is 3"},
           Spoilt{kU8, kResidualTypeAt, 5, "residual_type is 5"},
           Spoilt{kU8, kResidualTypeAt, 1, "residual_scale is 0"},
           Spoilt{kU8, kResidualScaleAt, 0x3f800000, "residual_scale is 1"},
           Spoilt{kU8, kResidualScaleAt, 0x7fc00000, "residual_scale is nan"},
           Spoilt{kU8, kResidualZeroPointAt, 1, "residual_zero_point is 1"},
           Spoilt{kU8, kSpatialDimsAt, 1, "it holds a convolution; expected a GEMM"},
           Spoilt{kU8, kChoicesAt, 1, "size"},
           Spoilt{kU8, kWeightsAt + 12, 7, "padding"},      // column 3 of 3
           Spoilt{kU8, kWeightsAt + 16 + 1, 7, "padding"},  // depth 5 of 5
           Spoilt{kU8, kWeightsAt + kNarrowBytes - 1, 7, "padding"},
           Spoilt{kU8, kNAt, 17, "size"},
           Spoilt{kU8, kKAt, 65, "size"},
           Spoilt{kS32, kActivationAt, 1, "activation is given for s32 output"},
           Spoilt{kS32, kCZeroPointAt, 1, "c_zero_point is 1"},
       }) {
    SCOPED_TRACE(c.words);
    Write(path_, Forged(Image(c.line), c.at, c.value));
    ExpectRefused(path_, c.words);
  }
}

// Both biases have one offset.
TEST_F(PackFile, RefusesABiasThatAPlanWouldRefuse) {
  Write(path_, Forged(Image(kS32), kVectorsAt, 0x5));
  ExpectRefused(path_, "bias_f32 is given for s32 output");
}

// The epilogue relies on bounds within the type. Bounds of a file are clamped to it, like those of a
// descriptor.
TEST_F(PackFile, BoundsOf8BitOutputsAreWithinTheType) {
  const Problem problem = Parsed("gemm u8s8u8 m=9 n=3 k=5 zc=9 bias=f32 fill=extremes");
  const reference::Gemm gemm = verify::MaterializeGemm(problem);
  const Bytes image = Image(problem.ToString().c_str());
  const Bytes expected = Output(Create(problem), gemm);
  const std::pair<size_t, uint32_t> beyond[] = {
      {kClampMinAt, 0xc3800000},  // −256: below what u8 can hold
      {kClampMaxAt, 0x43800000},  // 256: above
      {kClampMinAt, 0xff800000},  // −∞
      {kClampMaxAt, 0x7f800000},  // ∞
  };
  for (const auto& [at, bits] : beyond) {
    const Bytes forged = Forged(image, at, bits);
    ASSERT_NE(forged, image);
    Write(path_, forged);
    for (const intact_isa isa : core::kIsaLadder) {
      if (intact_isa_available(isa) == 0) continue;
      const Result<Plan> plan = LoadPlan(path_, isa);
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_EQ(Output(*plan, gemm), expected) << at << " on " << intact_isa_name(isa);
      const std::string again = path_ + ".again";
      ASSERT_EQ(intact_gemm_save(plan->get(), again.c_str()), INTACT_OK);
      EXPECT_EQ(WithoutSchedules(Read(again)), WithoutSchedules(image)) << at;
    }
  }
}

TEST_F(PackFile, RefusesResidualsThatAPlanWouldRefuse) {
  constexpr const char* kWithU8 = "gemm u8s8u8 m=1 n=3 k=5 res=u8 zres=255";
  constexpr const char* kWithS8 = "gemm u8s8u8 m=1 n=3 k=5 res=s8 zres=-128";
  for (const Spoilt& c : {
           Spoilt{kWithU8, kResidualScaleAt, 0, "residual_scale is 0"},
           Spoilt{kWithU8, kResidualScaleAt, 0x7f800000, "residual_scale is inf"},
           Spoilt{kWithU8, kResidualScaleAt, 0xbf800000, "residual_scale is -1"},
           Spoilt{kWithU8, kResidualZeroPointAt, 256, "residual_zero_point is 256"},
           Spoilt{kWithU8, kResidualZeroPointAt, 0xffffffff, "residual_zero_point is -1"},
           Spoilt{kWithS8, kResidualZeroPointAt, 128, "residual_zero_point is 128"},
           Spoilt{kWithS8, kResidualZeroPointAt, 0xffffff7f, "residual_zero_point is -129"},
           Spoilt{"gemm u8s8f32 m=1 n=3 k=5 res=f32", kResidualZeroPointAt, 1, "residual_zero_point is 1"},
           Spoilt{kS32, kResidualTypeAt, INTACT_U8, "residual_type is 1 with s32 output"},
       }) {
    SCOPED_TRACE(c.words);
    Write(path_, Forged(Image(c.line), c.at, c.value));
    ExpectRefused(path_, c.words);
  }
}

TEST_F(PackFile, RefusesFloatsThatAPlanWouldRefuse) {
  const Bytes image = Image(kU8);
  constexpr size_t kBiasAt = kWeightsAt + kNarrowBytes + 64;  // after the zero points
  constexpr size_t kScalesAt = kBiasAt + 64;
  for (const uint32_t bits : {0x7fc00000u, 0x7f800000u, 0x80000001u, 0xbf800000u}) {  // NaN, ∞, −2⁻¹⁴⁹, −1
    Write(path_, Forged(image, kScalesAt, bits));
    ExpectRefused(path_, "scales[0]");
  }
  Write(path_, Forged(image, kBiasAt + 4, 0x7fc00000u));
  ExpectRefused(path_, "bias_f32[1] is nan");
}

TEST_F(PackFile, RefusesWeightZeroPointsOutOfRange) {
  struct Case {
    const char* line;
    int32_t zero_point;
    std::vector<int32_t> beyond;
  };
  constexpr size_t kZeroPointsAt = kWeightsAt + kNarrowBytes;
  for (const Case& c : {Case{"gemm u8u8s32 m=1 n=3 k=5 zb=7", 7, {256, -1, 1 << 20}},
                        Case{"gemm u8s8s32 m=1 n=3 k=5 zb=7", 7, {128, -129, 1 << 20}},
                        Case{"gemm u8s8s32 m=1 n=3 k=5", 0, {128, -129, 1 << 20}}}) {
    const Bytes image = Image(c.line);
    ASSERT_EQ(Field<int32_t>(image, kZeroPointsAt + 8), c.zero_point);
    for (const int32_t value : c.beyond) {
      Write(path_, Forged(image, kZeroPointsAt + 8, static_cast<uint32_t>(value)));
      ExpectRefused(path_, ("b_zero_points[2] is " + std::to_string(value)).c_str());
    }
  }
}

}  // namespace
}  // namespace intact::tests
