#include "train/tensorboard.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

std::string new_folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "tensorboard_test." + name;
  std::filesystem::remove_all(folder);
  return folder;
}

std::string hex_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::string hex;
  for (const char byte : text.str()) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return hex;
}

std::string name_of(const TensorBoardWriter& writer) {
  return std::filesystem::path(writer.path()).filename().string();
}

// The bytes that tensorboard 2.21.0 makes of the same three events, with its event_pb2 and its
// RecordWriter: file_version, a session start at step 301, and a summary of "loss" 2.5 and
// "aux/balance" NaN at step 301.
TEST(TensorBoardWriter, WritesTheBytesOfTensorBoard) {
  TensorBoardWriter writer(new_folder("golden"), 1700000000.5, "host", /*resume_step=*/300);
  writer.write(301, 1700000001.25,
               {{"loss", 2.5}, {"aux/balance", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(hex_of(writer.path()),
            "1800000000000000a37f4b220900002040fc54d9411a0d62"
            "7261696e2e4576656e743a322b3531101000000000000000"
            "95fbfe180900002040fc54d94110ad023a020801596f3f79"
            "2f000000000000006d5d1d500900005040fc54d94110ad02"
            "2a210a0b0a046c6f737315000020400a120a0b6175782f62"
            "616c616e6365150000c07f871fb4c9");
}

TEST(TensorBoardWriter, NamesFilesByTimeAndHost) {
  const std::string folder = new_folder("names") + "/deep/er";
  const TensorBoardWriter writer(folder, 1700000000.9, "rack1/node2", 0);
  EXPECT_EQ(name_of(writer), "events.out.tfevents.1700000000.rack1_node2");
}

// TensorBoard reads files in the order of their names: a later start must sort behind an earlier
// one, within a second of it and when the clock went back.
TEST(TensorBoardWriter, NamesLaterStartsBehindEarlierOnes) {
  const std::string folder = new_folder("order");
  EXPECT_EQ(name_of(TensorBoardWriter(folder, 1700000000, "b", 0)),
            "events.out.tfevents.1700000000.b");
  EXPECT_EQ(name_of(TensorBoardWriter(folder, 1700000000, "b", 0)),
            "events.out.tfevents.1700000001.b");
  EXPECT_EQ(name_of(TensorBoardWriter(folder, 1600000000, "a", 0)),
            "events.out.tfevents.1700000002.a");
}

TEST(TensorBoardWriter, NamesTheFolderThatCannotBe) {
  const std::string file = new_folder("file");
  std::ofstream(file) << "a file, no folder";
  try {
    const TensorBoardWriter writer(file, 1700000000, "host", 0);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), "cannot make TensorBoard files in " + file +
                                ": Not a directory; check that the folder can be made and written");
  }
}

}  // namespace
}  // namespace switchyard
