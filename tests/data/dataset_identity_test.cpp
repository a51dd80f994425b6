#include "data/dataset_identity.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

TEST(DatasetIdentity, IsThatOfTheTokensWhereverTheyLie) {
  const std::string folder = fresh_folder();
  const auto one = identity_of(IndexedDataset(write_dataset(folder + "a", {{1, 2}, {3}})));
  EXPECT_EQ(one.num_documents, 2);
  EXPECT_EQ(one.num_tokens, 3);
  EXPECT_EQ(one, identity_of(IndexedDataset(write_dataset(folder + "b", {{1, 2}, {3}}))));
  EXPECT_NE(one, identity_of(IndexedDataset(write_dataset(folder + "c", {{1, 2}, {4}}))));
  EXPECT_EQ(dataset_identity_from_json(to_json(one), "record.json"), one);
}

TEST(DatasetIdentity, LooksAtTheBeginningOfDataWithoutASidecar) {
  const std::string folder = fresh_folder();
  const auto without_sidecar = [&](const std::string& prefix,
                                   const std::vector<std::vector<int32_t>>& documents) {
    write_dataset(prefix, documents);
    std::filesystem::remove(prefix + ".json");
    return identity_of(IndexedDataset(prefix));
  };
  const auto one = without_sidecar(folder + "a", {{1, 2}, {3}});
  EXPECT_EQ(one, without_sidecar(folder + "b", {{1, 2}, {3}}));
  EXPECT_NE(one, without_sidecar(folder + "c", {{1, 2}, {4}}));
  EXPECT_NE(one, without_sidecar(folder + "d", {{1}, {2, 3}}));
}

TEST(DatasetIdentity, RefusesAnotherObject) {
  EXPECT_THROW(dataset_identity_from_json({{"tokens", 3}}, "record.json"), FileError);
  EXPECT_THROW(dataset_identity_from_json("text", "record.json"), FileError);
}

}  // namespace
}  // namespace switchyard
