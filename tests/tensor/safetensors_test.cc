#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/files/files.h"
#include "expect_error.h"
#include "half_file.h"
#include "temporary_folder.h"

namespace some {
namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t size = header.size();
  std::string result(8, '\0');
  std::memcpy(result.data(), &size, 8);
  return result + header + std::string(data_bytes, 'd');
}

void expect_refused(const std::string& contents, Code code, std::vector<std::string> values = {}) {
  const TemporaryFolder folder;
  const std::string path = folder.write("model.safetensors", contents);
  if (code != Code::json_syntax) values.insert(values.begin(), path);  // there it is the place in the header
  EXPECT_TRUE(is_bad_input(error_in([&] { SafetensorsFile::open(path); }), code, values));
}

TEST(Safetensors, RoundTrip) {
  const TemporaryFolder folder;
  Tensor narrow = Tensor::empty({3}, DType::bf16);
  for (int i = 0; i < 3; ++i) narrow.data<BFloat16>()[i] = to_bfloat16(static_cast<float>(i));
  Tensor wide = Tensor::empty({2, 2}, DType::f64);
  for (int i = 0; i < 4; ++i) wide.data<double>()[i] = i / 3.0;
  Tensor count = Tensor::empty({}, DType::i64);
  count.data<std::int64_t>()[0] = -5;
  const Tensor none = Tensor::empty({0, 7}, DType::i32);
  Tensor single = Tensor::empty({1}, DType::f32);
  single.data<float>()[0] = 0.1f;
  const std::string path = folder.file("a.safetensors");
  write_safetensors(path,
                    {{"narrow", narrow}, {"wide \"q\"", wide}, {"count", count}, {"none", none}, {"single", single}},
                    {{"step", "12"}, {"naïve", "ok\n"}});

  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.names().size(), 5u);
  EXPECT_EQ(file.metadata().at("step"), "12");
  EXPECT_EQ(file.metadata().at("naïve"), "ok\n");
  EXPECT_EQ(file.load("narrow").data<BFloat16>()[2].bits, narrow.data<BFloat16>()[2].bits);
  EXPECT_EQ(std::memcmp(file.load("wide \"q\"").raw(), wide.raw(), wide.bytes()), 0);
  EXPECT_EQ(file.shape("wide \"q\""), (Shape{2, 2}));
  EXPECT_EQ(file.load("count").data<std::int64_t>()[0], -5);
  EXPECT_EQ(file.shape("count").rank(), 0);
  EXPECT_EQ(file.load("none").elements(), 0);
  EXPECT_EQ(file.dtype("single"), DType::f32);
  EXPECT_EQ(file.load("single").data<float>()[0], 0.1f);
  EXPECT_FALSE(file.has("other"));
  EXPECT_THROW(file.load("other"), Error);
}

TEST(Safetensors, NothingInsideIsFine) {
  const TemporaryFolder folder;
  write_safetensors(folder.file("a"), {}, {});
  EXPECT_TRUE(SafetensorsFile::open(folder.file("a")).names().empty());
}

TEST(Safetensors, TensorsAreAlignedForReadersThatMap) {
  const TemporaryFolder folder;
  write_safetensors(folder.file("a"),
                    {{"b", Tensor::zeros({3}, DType::bf16)},
                     {"i", Tensor::zeros({1}, DType::i32)},
                     {"d", Tensor::zeros({1}, DType::f64)}},
                    {});
  const std::string contents = read_file(folder.file("a"));
  std::uint64_t header = 0;
  std::memcpy(&header, contents.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_NE(contents.find("\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}"), std::string::npos)
      << contents;
}

TEST(Safetensors, WriterRefusesTwoOfOneName) {
  const TemporaryFolder folder;
  const Tensor tensor = Tensor::zeros({1}, DType::f32);
  EXPECT_THROW(write_safetensors(folder.file("a"), {{"x", tensor}, {"x", tensor}}, {}), Error);
  EXPECT_THROW(write_safetensors(folder.file("a"), {{"__metadata__", tensor}}, {}), Error);
  EXPECT_THROW(write_safetensors(folder.file("a"), {{"x", Tensor()}}, {}), Error);
  EXPECT_EQ(folder.entries(), 0u);
}

// Opens the file and loads all of it; returns the problem, or an empty text.
std::optional<Error> fault_of(const std::string& path) {
  const auto error = error_in([&] {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const std::string& name : file.names()) file.load(name);
  });
  if (error) {
    EXPECT_EQ(error->fault(), Fault::input) << error->what();
    EXPECT_NE(std::string(error->what()).find(path), std::string::npos) << error->what();
  }
  return error;
}

TEST(Safetensors, EveryFlippedBitIsFound) {
  const TemporaryFolder folder;
  Tensor first = Tensor::zeros({2, 3}, DType::f32), second = Tensor::zeros({2}, DType::i64);
  first.data<float>()[1] = 0.5f;
  const std::string path = folder.file("a.safetensors");
  write_safetensors(path, {{"first", first}, {"second", second}, {"none", Tensor::zeros({0}, DType::f32)}},
                    {{"state", R"({"step": 12})"}});
  ASSERT_FALSE(fault_of(path));
  EXPECT_TRUE(SafetensorsFile::open(path).has_checksums());
  EXPECT_EQ(SafetensorsFile::open(path).metadata().size(), 1u) << "the checksums are the file's own matter";
  const std::string whole = read_file(path);
  const std::size_t data = whole.size() - first.bytes() - second.bytes();
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);  // in place: new files would take long
  const auto put = [&](std::size_t i, char c) {
    stream.seekp(static_cast<std::streamoff>(i));
    stream.put(c).flush();
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      put(i, static_cast<char>(whole[i] ^ (1 << bit)));
      const auto fault = fault_of(path);
      EXPECT_TRUE(fault) << "bit " << bit << " of byte " << i;
      if (i >= data) {
        EXPECT_TRUE(is_error(fault, Code::tensor_damaged, {path, i < data + second.bytes() ? "second" : "first"}));
      }
    }
    put(i, whole[i]);
  }
  ASSERT_FALSE(fault_of(path));
  EXPECT_TRUE(fault_of(folder.write("long", whole + "x")));
  for (std::size_t length = whole.size(); length-- > 0;) {
    std::filesystem::resize_file(path, length);
    EXPECT_TRUE(fault_of(path)) << length;
  }
}

TEST(Safetensors, FilesWithoutChecksumsAreRead) {
  const TemporaryFolder folder;
  const std::string path = folder.write("old", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
  EXPECT_FALSE(SafetensorsFile::open(path).has_checksums());
  EXPECT_FALSE(fault_of(path));
  // Another program may reorder the metadata and change tensors: the old checksums are then ignored.
  const char* const kept = R"({"__metadata__":{"checksums":"","checksum":"0000000000000000"}})";
  EXPECT_TRUE(is_error(fault_of(folder.write("kept", file_of(kept, 0))), Code::file_damaged, {folder.file("kept")}));
}

TEST(Safetensors, AbsentFileIsNamed) {
  EXPECT_ERROR(SafetensorsFile::open("/no/such/file"), Code::file_not_found, "/no/such/file");
  const TemporaryFolder folder;
  EXPECT_ERROR(SafetensorsFile::open(folder.path()), Code::file_not_regular, folder.path());
}

TEST(Safetensors, EveryDamageIsRefused) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  {
    const TemporaryFolder folder;
    EXPECT_NO_THROW(SafetensorsFile::open(folder.write("ok", file_of(good + "   ", 8))));
  }
  expect_refused("", Code::safetensors_header);
  expect_refused("1234567", Code::safetensors_header);
  expect_refused(std::string(8, '\xff'), Code::safetensors_header);
  expect_refused(file_of(good, 8).substr(0, 20), Code::safetensors_header, {"20"});
  expect_refused(file_of(good, 7), Code::safetensors_layout, {"a", "0", "8", "7"});
  expect_refused(file_of(good, 9), Code::safetensors_layout, {"8", "9"});
  expect_refused(file_of("{", 0), Code::json_syntax);
  expect_refused(file_of("", 0), Code::json_syntax);
  expect_refused(file_of("[]", 0), Code::safetensors_header);
  expect_refused(file_of(std::string(100000, '['), 0), Code::json_syntax, {"64"});
  expect_refused(file_of(R"({"a)"
                         "\x01"
                         R"(":3})",
                         0),
                 Code::json_syntax);
  expect_refused(file_of(R"({"\u001b[2J":3})", 0), Code::safetensors_entry, {"\\x1b[2J"});
  expect_refused(
      file_of(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4),
      Code::safetensors_entry, {"a", "17"});
  expect_refused(file_of(R"({"a":3})", 0), Code::safetensors_entry, {"a"});
  expect_refused(file_of(R"({"__metadata__":{"x":1}})", 0), Code::safetensors_entry, {"x"});
  expect_refused(file_of(R"({"__metadata__":1})", 0), Code::safetensors_entry, {"__metadata__"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), Code::safetensors_entry, {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), Code::safetensors_entry,
                 {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F13","shape":[2],"data_offsets":[0,8]}})", 8), Code::safetensors_entry,
                 {"a", "\"F13\""});
  expect_refused(file_of(R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", 8), Code::safetensors_entry,
                 {"a", "7"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), Code::safetensors_entry, {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), Code::safetensors_entry,
                 {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), Code::safetensors_entry,
                 {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), Code::safetensors_layout,
                 {"a", "12", "8"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
                 Code::safetensors_layout, {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[0,0]}})", 0),
                 Code::safetensors_layout, {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), Code::safetensors_entry, {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), Code::safetensors_layout,
                 {"a", "8", "0"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,"8"]}})", 8), Code::safetensors_entry,
                 {"a"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), Code::safetensors_layout,
                 {"0", "4"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"I32","shape":[1],"data_offsets":[4,8]}})",
                         8),
                 Code::safetensors_layout, {"4"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("b":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}})",
                         12),
                 Code::safetensors_layout, {"4", "8"});
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                         8),
                 Code::safetensors_header, {"a"});
}

// Compares every fp16 number with the processor's conversion.
TEST(Safetensors, HalvesBecomeFloats) {
  const TemporaryFolder folder;
  Tensor all = Tensor::empty({1 << 16}, DType::f32);
  for (int bits = 0; bits < 1 << 16; ++bits) all.data<float>()[bits] = half_value(static_cast<std::uint16_t>(bits));
  write_half_file(folder.file("half"), {{"all", all}});
  const SafetensorsFile file = SafetensorsFile::open(folder.file("half"));
  EXPECT_TRUE(file.is_half("all"));
  EXPECT_EQ(file.dtype("all"), DType::f32);
  for (const Tensor& read : {file.load("all"), file.map("all")}) {
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const float wanted = all.data<float>()[bits], found = read.data<float>()[bits];
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(found)
                                     : wanted == found && std::signbit(wanted) == std::signbit(found))
          << bits << ": " << found;
    }
  }
  expect_refused(file_of(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,8]}})", 8), Code::safetensors_layout,
                 {"a", "4", "8"});
}

TEST(Safetensors, AMappedTensorLiesInTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  Tensor numbers = Tensor::empty({300, 7}, DType::f32);
  for (std::int64_t i = 0; i < numbers.elements(); ++i) numbers.data<float>()[i] = static_cast<float>(i);
  write_safetensors(path, {{"first", Tensor::zeros({3}, DType::f64)}, {"numbers", numbers}}, {});
  Tensor mapped = SafetensorsFile::open(path).map("numbers");  // outlives the file it was opened from
  EXPECT_EQ(read_vector(mapped), read_vector(numbers));
  std::ifstream maps("/proc/self/maps");
  const std::string all((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
  EXPECT_NE(all.find(path), std::string::npos);
  // Replacing the file by renaming does not change the mapping.
  write_safetensors(path, {{"numbers", Tensor::zeros({300, 7}, DType::f32)}}, {});
  EXPECT_EQ(read_vector(mapped), read_vector(numbers));
  // Damage is detected, and unaligned tensors are copied.
  std::string bytes = read_file(path);
  bytes.back() = 1;
  folder.write("damaged", bytes);
  EXPECT_THROW(SafetensorsFile::open(folder.file("damaged")).map("numbers"), Error);
  folder.write("odd", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )", 8));
  folder.write("odder", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )", 8));
  for (const char* name : {"odd", "odder"}) {
    const Tensor here = SafetensorsFile::open(folder.file(name)).map("a");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(here.raw()) % 4, 0u);
    EXPECT_EQ(std::memcmp(here.raw(), "dddddddd", 8), 0);
  }
}

}  // namespace
}  // namespace some
