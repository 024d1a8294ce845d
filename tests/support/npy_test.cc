#include "support/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/npy_text.h"
#include "tests/support/temp_path.h"

namespace intact::verify {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::Dict;
using tests::Npy;

class NpyTest : public testing::Test {
 public:
  ~NpyTest() override { std::filesystem::remove(path_); }

 protected:
  Result<support::NpyArray> Read(const std::string& file) {
    std::ofstream(path_, std::ios::binary) << file;
    return support::ReadNpy(path_);
  }

  /// The error of reading `file`. It must name the file and be one line.
  std::string ErrorOf(const std::string& file) {
    const Result<support::NpyArray> array = Read(file);
    if (array) return "no error";
    EXPECT_THAT(array.error().message, HasSubstr(path_));
    EXPECT_EQ(array.error().message.find('\n'), std::string::npos);
    return array.error().message;
  }

  const std::string path_ = tests::TempPath() + ".npy";
};

TEST_F(NpyTest, ReadsEachTypeInBothVersions) {
  for (const char major : {'\1', '\2'}) {
    const Result<support::NpyArray> u8 = Read(Npy(Dict("|u1", "(2, 3)"), "abcdef", major));
    ASSERT_TRUE(u8) << u8.error().message;
    EXPECT_EQ(u8->type, INTACT_U8);
    EXPECT_THAT(u8->shape, ElementsAre(2, 3));
    EXPECT_THAT(u8->Values<uint8_t>(), ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
    const Result<support::NpyArray> s8 = Read(Npy(Dict("|i1", "(1,)"), "\xff", major));
    ASSERT_TRUE(s8) << s8.error().message;
    EXPECT_THAT(s8->Values<int8_t>(), ElementsAre(-1));
    const Result<support::NpyArray> f32 =
        Read(Npy(Dict("<f4", "(1,)"), std::string("\0\0\xc0\x3f", 4), major));
    ASSERT_TRUE(f32) << f32.error().message;
    EXPECT_THAT(f32->Values<float>(), ElementsAre(1.5f));
    const Result<support::NpyArray> s32 =
        Read(Npy(Dict("<i4", "()"), std::string("\xfe\xff\xff\xff", 4), major));
    ASSERT_TRUE(s32) << s32.error().message;
    EXPECT_THAT(s32->Values<int32_t>(), ElementsAre(-2));
  }
}

TEST_F(NpyTest, RefusesWhatItCannotRead) {
  EXPECT_THAT(ErrorOf(Npy(Dict("<f8", "(1,)"), "12345678")), HasSubstr("type '<f8'"));
  EXPECT_THAT(ErrorOf(Npy(Dict(">f4", "(1,)"), "1234")), HasSubstr("type '>f4'"));
  EXPECT_THAT(ErrorOf(Npy(Dict("", "(1,)"), "1")), HasSubstr("type ''"));
  EXPECT_THAT(ErrorOf(Npy(Dict("|u1", "(2,)"), "ab", 3)), HasSubstr("version 3.0"));
}

TEST_F(NpyTest, RefusesAbsurdShapes) {
  EXPECT_THAT(ErrorOf(Npy(Dict("|u1", "(0, 4)"), "")), HasSubstr("invalid shape (0, 4)"));
  EXPECT_THAT(ErrorOf(Npy(Dict("|u1", "(-1,)"), "")), HasSubstr("invalid shape"));
  EXPECT_THAT(ErrorOf(Npy(Dict("<f4", "(4611686018427387904,)"), "")), HasSubstr("invalid shape"));
  EXPECT_THAT(ErrorOf(Npy(Dict("<f4", "(4294967296, 4294967296)"), "")), HasSubstr("invalid shape"));
  EXPECT_THAT(ErrorOf(Npy(Dict("|u1", "(99999999999,)"), "ab")), HasSubstr("truncated"));
  const auto ones = [](int count) {
    std::string shape = "(";
    for (int i = 0; i < count; ++i) shape += "1,";
    return shape + ")";
  };
  EXPECT_TRUE(Read(Npy(Dict("|u1", ones(64), "True"), "a")));
  EXPECT_THAT(ErrorOf(Npy(Dict("|u1", ones(65), "True"), "a")),
              HasSubstr("has 65 dimensions; expected at most 64"));
}

TEST_F(NpyTest, RefusesEveryTruncation) {
  const std::string file = Npy(Dict("|u1", "(2, 3)"), "abcdef");
  ASSERT_TRUE(Read(file));
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(ErrorOf(file.substr(0, size)), "no error") << size;
  EXPECT_THAT(ErrorOf(file + "g"), HasSubstr("trailing bytes"));
}

TEST_F(NpyTest, RefusesMalformedHeaders) {
  for (const char* header :
       {"", "{", "{}", "{'descr': '|u1'}", "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)",
        "{'descr': '|u1', 'fortran_order': False, 'shape': 2}",
        "{'descr': '|u1', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} 7",
        "{'descr': '\x1b[2J', 'fortran_order': False, 'shape': (2,)}"}) {
    EXPECT_THAT(ErrorOf(Npy(header, "ab")), HasSubstr("malformed .npy header")) << header;
  }
  EXPECT_THAT(ErrorOf("PK\3\4 a zip file"), HasSubstr("not a .npy file"));
}

TEST_F(NpyTest, ReadsFortranOrder) {
  const Result<support::NpyArray> matrix = Read(Npy(Dict("|u1", "(2, 3)", "True"), "adbecf"));
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_THAT(matrix->shape, ElementsAre(2, 3));
  EXPECT_THAT(matrix->Values<uint8_t>(), ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  const Result<support::NpyArray> cube = Read(Npy(Dict("|u1", "(2, 2, 3)", "True"), "agdjbhekcifl"));
  ASSERT_TRUE(cube) << cube.error().message;
  EXPECT_EQ(std::string(cube->bytes.begin(), cube->bytes.end()), "abcdefghijkl");
  const std::string words("\1\0\0\0\3\0\0\0\2\0\0\0\4\0\0\0", 16);
  const Result<support::NpyArray> wide = Read(Npy(Dict("<i4", "(2, 2)", "True"), words));
  ASSERT_TRUE(wide) << wide.error().message;
  EXPECT_THAT(wide->Values<int32_t>(), ElementsAre(1, 2, 3, 4));
  for (const char* shape : {"()", "(1,)"}) {
    const Result<support::NpyArray> one = Read(Npy(Dict("|u1", shape, "True"), "a"));
    ASSERT_TRUE(one) << one.error().message;
    EXPECT_THAT(one->bytes, ElementsAre('a'));
  }
}

TEST_F(NpyTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(support::ReadNpy("/nonexistent/x.npy").error().message,
              HasSubstr("/nonexistent/x.npy: no such file"));
  EXPECT_THAT(support::ReadNpy(testing::TempDir()).error().message,
              HasSubstr("is neither a regular file nor a pipe"));
  // A size beyond any memory and disk: the file has no blocks.
  ASSERT_FALSE(Read(""));
  std::filesystem::resize_file(path_, uintmax_t{1} << 42);
  EXPECT_THAT(support::ReadNpy(path_).error().message,
              AllOf(HasSubstr(path_), HasSubstr("has 4398046511104 bytes; at most")));
}

}  // namespace
}  // namespace intact::verify
