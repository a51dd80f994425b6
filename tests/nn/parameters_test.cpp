#include "nn/parameters.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/random.h"

namespace switchyard {
namespace {

using Sizes = std::vector<int64_t>;

constexpr uint64_t kSeed = 1234;
constexpr double kStd = 0.02;

// One rank of a layout as far as declarations go: nothing here communicates.
std::unique_ptr<Groups> rank_of(const MeshShape& shape, int64_t rank) {
  return std::make_unique<Groups>(Mesh(shape), rank, nullptr);
}

ParameterSpec spec_of(const Sizes& shape, Family family, const Placement& tensor) {
  return {.name = "layers.0.weight",
          .shape = shape,
          .init = Init::normal(kStd),
          .family = family,
          .tensor = tensor};
}

std::string refusal(const std::function<void()>& declare) {
  try {
    declare();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string describe(const MeshShape& shape, const ParameterSpec& spec, int64_t rank) {
  return fmt::format("rank {} of {}: tp {} cp {} pp {} ep {} etp {} {}, [{}] {} {}", rank,
                     shape.world_size, shape.tensor, shape.context, shape.pipeline, shape.expert,
                     shape.expert_tensor, shape.order, fmt::join(spec.shape, ", "),
                     spec.family == Family::kDense ? "dense" : "expert", to_string(spec.tensor));
}

// Random layouts with random declarations that fit them.
void for_random_cases(int count,
                      const std::function<void(const MeshShape&, const ParameterSpec&)>& body) {
  std::mt19937 random(5);
  const auto pick = [&](const Sizes& choices) { return choices[random() % choices.size()]; };
  while (count > 0) {
    MeshShape shape;
    shape.tensor = pick({1, 2, 3});
    shape.context = pick({1, 1, 2});
    shape.pipeline = pick({1, 1, 2});
    shape.expert = pick({1, 2, 4});
    shape.expert_tensor = pick({1, 2, 3});
    shape.world_size = shape.pipeline * pick({1, 2, 4, 6, 8, 12});
    shape.order = random() % 2 == 0 ? "tp-cp-ep-dp-pp" : "ep-dp-tp-cp-pp";
    try {
      const Mesh mesh(shape);
    } catch (const ConfigError&) {
      continue;
    }
    Sizes sizes;
    const int64_t num_dims = pick({1, 2, 3, 4});
    for (int64_t dim = 0; dim < num_dims; ++dim) {
      sizes.push_back(pick({1, 2, 5}));
    }
    const Family family = random() % 2 == 0 ? Family::kDense : Family::kExpert;
    const Placement placements[] = {Placement::invariant(), Placement::replicated(),
                                    Placement::sharded(pick({0, 1, 2, 3}) % num_dims, 0)};
    Placement tensor = placements[random() % 3];
    if (family == Family::kExpert) {
      sizes[0] *= shape.expert;
      tensor = tensor.kind == PlacementKind::kReplicated ? Placement::invariant() : tensor;
    }
    if (tensor.kind == PlacementKind::kSharded) {
      sizes[static_cast<size_t>(tensor.dim)] *=
          family == Family::kDense ? shape.tensor : shape.expert_tensor;
    }
    body(shape, spec_of(sizes, family, tensor));
    --count;
  }
}

// The slice of a logical tensor that a rank holds, cut as idea 1 says: experts first, then the dim
// that tensor parallelism cuts.
at::Tensor slice_of(const at::Tensor& whole, const ParameterSpec& spec, const Groups& groups) {
  at::Tensor part = whole;
  const auto cut = [&](int64_t dim, Axis axis) {
    part = part.chunk(groups.mesh().size(axis),
                      dim)[static_cast<size_t>(groups.mesh().coordinate(groups.rank(), axis))];
  };
  if (spec.family == Family::kExpert) {
    cut(0, Axis::kExpert);
  }
  if (spec.tensor.kind == PlacementKind::kSharded) {
    cut(spec.tensor.dim, spec.family == Family::kDense ? Axis::kTensor : Axis::kExpertTensor);
  }
  return part;
}

TEST(Parameter, StartsFromTheBitsOfTheOneRankTensorInEveryLayout) {
  const auto single = Groups::single();
  for_random_cases(120, [&](const MeshShape& shape, const ParameterSpec& spec) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const at::Tensor whole = Parameter(spec, *single).initial_values(kSeed, dtype);
      for (int64_t rank = 0; rank < shape.world_size; ++rank) {
        const auto groups = rank_of(shape, rank);
        const Parameter parameter(spec, *groups);
        const at::Tensor local = parameter.initial_values(kSeed, dtype);
        ASSERT_EQ(local.scalar_type(), dtype);
        ASSERT_EQ(local.sizes(), parameter.local_shape());
        ASSERT_EQ(local.numel(), parameter.local_numel());
        ASSERT_TRUE(at::equal(local, slice_of(whole, spec, *groups)))
            << describe(shape, spec, rank);
      }
    }
  });
}

TEST(Parameter, SaysWhereItsPartLies) {
  for_random_cases(120, [](const MeshShape& shape, const ParameterSpec& spec) {
    int64_t numel = 1;
    for (const int64_t size : spec.shape) {
      numel *= size;
    }
    const at::Tensor index = at::arange(numel).view(spec.shape);
    for (int64_t rank = 0; rank < shape.world_size; ++rank) {
      const auto groups = rank_of(shape, rank);
      const Parameter parameter(spec, *groups);
      at::Tensor part = index;
      for (size_t dim = 0; dim < spec.shape.size(); ++dim) {
        part = part.narrow(static_cast<int64_t>(dim), parameter.local_start()[dim],
                           parameter.local_shape()[dim]);
      }
      ASSERT_TRUE(at::equal(part, slice_of(index, spec, *groups))) << describe(shape, spec, rank);
    }
  });
}

TEST(Parameter, DrawsEachElementFromSeedNameAndLogicalIndexAlone) {
  const auto single = Groups::single();
  ParameterSpec spec = spec_of({3, 4, 5}, Family::kDense, Placement::invariant());
  const at::Tensor values = Parameter(spec, *single).initial_values(kSeed, at::kDouble).view({-1});
  const RandomStream stream(kSeed, "layers.0.weight");
  for (int64_t i = 0; i < values.numel(); ++i) {
    EXPECT_EQ(values[i].item<double>(), kStd * stream.normal(static_cast<uint64_t>(i)));
  }
  const at::Tensor rounded = Parameter(spec, *single).initial_values(kSeed, at::kFloat).view({-1});
  EXPECT_TRUE(at::equal(rounded, values.to(at::kFloat)));

  EXPECT_FALSE(at::equal(Parameter(spec, *single).initial_values(kSeed + 1, at::kDouble).view({-1}),
                         values));
  spec.name = "layers.1.weight";
  EXPECT_FALSE(
      at::equal(Parameter(spec, *single).initial_values(kSeed, at::kDouble).view({-1}), values));
  spec.init = Init::zeros();
  EXPECT_TRUE(
      at::equal(Parameter(spec, *single).initial_values(kSeed, at::kFloat), at::zeros({3, 4, 5})));
  spec.init = Init::ones();
  EXPECT_TRUE(
      at::equal(Parameter(spec, *single).initial_values(kSeed, at::kFloat), at::ones({3, 4, 5})));
}

// The ranks of one pipeline stage that hold the very same elements, by the elements.
std::map<Sizes, std::vector<int64_t>> owners_of(const MeshShape& shape, const ParameterSpec& spec,
                                                int64_t stage) {
  std::map<Sizes, std::vector<int64_t>> owners;
  for (int64_t rank = 0; rank < shape.world_size; ++rank) {
    const auto groups = rank_of(shape, rank);
    if (groups->mesh().coordinate(rank, Axis::kPipeline) == stage) {
      owners[Parameter(spec, *groups).local_start()].push_back(rank);
    }
  }
  return owners;
}

TEST(Parameter, IsHeldByItsReplicasOfWhichOneIsTheFirst) {
  for_random_cases(120, [](const MeshShape& shape, const ParameterSpec& spec) {
    for (int64_t stage = 0; stage < shape.pipeline; ++stage) {
      int64_t num_elements = 0;
      for (const auto& [start, ranks] : owners_of(shape, spec, stage)) {
        std::set<int64_t> indices;
        int num_first = 0;
        for (const int64_t rank : ranks) {
          const auto groups = rank_of(shape, rank);
          const Parameter parameter(spec, *groups);
          ASSERT_EQ(parameter.num_replicas(), static_cast<int64_t>(ranks.size()))
              << describe(shape, spec, rank);
          indices.insert(parameter.replica_index());
          num_first += parameter.is_first_replica() ? 1 : 0;
          num_elements += parameter.is_first_replica() ? parameter.local_numel() : 0;
        }
        // 0, 1, 2 ... each once.
        ASSERT_EQ(indices.size(), ranks.size()) << describe(shape, spec, ranks.front());
        ASSERT_EQ(*indices.begin(), 0);
        ASSERT_EQ(*indices.rbegin(), static_cast<int64_t>(ranks.size()) - 1);
        ASSERT_EQ(num_first, 1);
      }
      int64_t logical = 1;
      for (const int64_t size : spec.shape) {
        logical *= size;
      }
      ASSERT_EQ(num_elements, logical) << "first replicas cover each element once";
    }
  });
}

TEST(Parameter, SumsItsGradientOverTheRanksThatComputeAPartOfIt) {
  for_random_cases(120, [](const MeshShape& shape, const ParameterSpec& spec) {
    const Axis tensor_axis = spec.family == Family::kDense ? Axis::kTensor : Axis::kExpertTensor;
    for (int64_t stage = 0; stage < shape.pipeline; ++stage) {
      for (const auto& [start, ranks] : owners_of(shape, spec, stage)) {
        for (const int64_t rank : ranks) {
          const auto groups = rank_of(shape, rank);
          const GroupName name = Parameter(spec, *groups).gradient_group();
          // All ranks with the same elements, except that an invariant parameter already has the
          // whole gradient on each rank of its tensor axis.
          std::vector<int64_t> expected;
          for (const int64_t other : ranks) {
            if (spec.tensor.kind != PlacementKind::kInvariant ||
                groups->mesh().coordinate(other, tensor_axis) ==
                    groups->mesh().coordinate(rank, tensor_axis)) {
              expected.push_back(other);
            }
          }
          ASSERT_EQ((*groups)[name].members(), expected) << describe(shape, spec, rank);
        }
      }
    }
  });
}

TEST(Parameter, NamesItsGradientGroup) {
  const auto single = Groups::single();
  const auto group_of = [&](Family family, const Placement& tensor) {
    return Parameter(spec_of({2, 2}, family, tensor), *single).gradient_group();
  };
  EXPECT_EQ(group_of(Family::kDense, Placement::sharded(1, 0)), GroupName::kDataContext);
  EXPECT_EQ(group_of(Family::kDense, Placement::invariant()), GroupName::kDataContext);
  EXPECT_EQ(group_of(Family::kDense, Placement::replicated()), GroupName::kDataContextTensor);
  EXPECT_EQ(group_of(Family::kExpert, Placement::sharded(1, 0)), GroupName::kExpertData);
  EXPECT_EQ(group_of(Family::kExpert, Placement::invariant()), GroupName::kExpertData);
}

TEST(Parameter, RefusesDeclarationsThatCannotBe) {
  MeshShape shape;
  shape.world_size = 6;
  shape.tensor = 2;
  shape.expert = 3;
  shape.expert_tensor = 2;
  const auto groups = rank_of(shape, 0);
  const auto declare = [&](const Sizes& sizes, Family family, const Placement& tensor) {
    return refusal([&] { Parameter(spec_of(sizes, family, tensor), *groups); });
  };
  EXPECT_EQ(declare({4, 7}, Family::kDense, Placement::sharded(1, 0)),
            "layers.0.weight: dim 1 of size 7 cannot be cut evenly over 2 tp ranks");
  EXPECT_EQ(declare({4, 7}, Family::kExpert, Placement::invariant()),
            "layers.0.weight: dim 0 of size 4 cannot be cut evenly over 3 ep ranks");
  EXPECT_EQ(declare({6, 7}, Family::kExpert, Placement::sharded(1, 0)),
            "layers.0.weight: dim 1 of size 7 cannot be cut evenly over 2 etp ranks");
  ParameterSpec uneven = spec_of({1, 7}, Family::kDense, Placement::sharded(0, 0));
  uneven.may_be_uneven = true;
  EXPECT_EQ(refusal([&] { Parameter(uneven, *groups); }),
            "layers.0.weight: dim 0 of size 1 cannot be cut over 2 tp ranks");
  EXPECT_EQ(declare({4}, Family::kDense, Placement::sharded(1, 0)),
            "layers.0.weight: there is no dim 1 to cut in shape [4]");
  EXPECT_EQ(declare({4}, Family::kDense, Placement::sharded(-1, 0)),
            "layers.0.weight: there is no dim -1 to cut in shape [4]");
  EXPECT_EQ(declare({}, Family::kDense, Placement::invariant()),
            "layers.0.weight: shape [] has no elements to train: at least one dim and sizes from 1 "
            "up are expected");
  EXPECT_EQ(declare({4, 0}, Family::kDense, Placement::invariant()),
            "layers.0.weight: shape [4, 0] has no elements to train: at least one dim and sizes "
            "from 1 up are expected");
  EXPECT_EQ(declare({4}, Family::kDense, Placement::partial()),
            "layers.0.weight: a parameter cannot be partial: every rank must hold its value");
  EXPECT_EQ(declare({3, 4}, Family::kExpert, Placement::replicated()),
            "layers.0.weight: an expert parameter cannot be replicated over etp: no group sums its "
            "gradient over etp and edp");
}

ParameterSpec named(const std::string& name, const Sizes& shape) {
  ParameterSpec spec = spec_of(shape, Family::kDense, Placement::invariant());
  spec.name = name;
  return spec;
}

TEST(Parameters, LayPiecesEndToEndInOneBuffer) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp32(), kSeed);
  const at::Tensor leaf = parameters.declare(
      {named("q", {4, 2, 3}), named("k", {1, 2, 3}), named("v", {1, 2, 3})}, {12, 3});
  EXPECT_EQ(leaf.sizes(), (Sizes{12, 3}));
  EXPECT_TRUE(leaf.requires_grad());
  EXPECT_TRUE(leaf.is_leaf());
  ASSERT_EQ(parameters.storages().size(), 1u);
  ParameterStorage& storage = *parameters.storages()[0];
  EXPECT_TRUE(storage.leaf.is_same(leaf));
  EXPECT_EQ(parameters.logical_numel(), 36);

  const Sizes begins{0, 24, 30};
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor piece = storage.piece(storage.master, i);
    EXPECT_EQ(piece.sizes(), storage.pieces[i].local_shape());
    EXPECT_TRUE(at::equal(piece, storage.pieces[i].initial_values(kSeed, at::kFloat)));
    EXPECT_TRUE(at::equal(piece.reshape({-1}),
                          leaf.detach().view({-1}).narrow(0, begins[i], piece.numel())));
    // A view: what is written to the piece is in the buffer.
    piece.fill_(static_cast<double>(i));
    EXPECT_EQ(storage.master.view({-1})[begins[i]].item<double>(), static_cast<double>(i));
    EXPECT_EQ(leaf.detach().view({-1})[begins[i]].item<double>(), static_cast<double>(i));
  }
}

TEST(Parameters, KeepAMasterCopyOnlyInMixedPrecision) {
  const auto groups = Groups::single();
  for (const Dtypes& dtypes : {Dtypes::fp64(), Dtypes::fp32(), Dtypes::bf16()}) {
    Parameters parameters(*groups, dtypes, kSeed);
    const at::Tensor leaf = parameters.declare({named("w", {5, 3})}, {5, 3});
    ParameterStorage& storage = *parameters.storages()[0];
    EXPECT_EQ(leaf.scalar_type(), dtypes.compute);
    EXPECT_EQ(storage.master.scalar_type(), dtypes.master);
    EXPECT_FALSE(storage.master.requires_grad());
    EXPECT_EQ(leaf.data_ptr() == storage.master.data_ptr(), !dtypes.is_mixed());
    EXPECT_TRUE(at::equal(leaf.detach(), storage.master.to(dtypes.compute)));
  }
}

TEST(ParameterStorage, SumsGradientsOfMicroBatchesInTheMasterDtype) {
  const auto groups = Groups::single();
  for (const Dtypes& dtypes : {Dtypes::fp64(), Dtypes::fp32(), Dtypes::bf16()}) {
    Parameters parameters(*groups, dtypes, kSeed);
    const at::Tensor leaf = parameters.declare({named("w", {2, 2})}, {2, 2});
    ParameterStorage& storage = *parameters.storages()[0];
    storage.absorb_gradient();  // nothing to absorb
    EXPECT_FALSE(storage.gradient.defined());
    // 1 + 1/256 is no bf16 number: a sum in bf16 would lose the second part.
    (leaf * 1.0).sum().backward();
    storage.absorb_gradient();
    EXPECT_FALSE(leaf.grad().defined());
    (leaf * (1.0 / 256)).sum().backward();
    storage.absorb_gradient();
    EXPECT_EQ(storage.gradient.scalar_type(), dtypes.master);
    EXPECT_TRUE(at::equal(storage.gradient, at::full({2, 2}, 1 + 1.0 / 256, dtypes.master)));
    EXPECT_FALSE(leaf.grad().defined());
  }
}

TEST(ParameterStorage, PublishesMastersRoundedToTheNearest) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::bf16(), kSeed);
  const at::Tensor leaf = parameters.declare({named("w", {4})}, {4});
  ParameterStorage& storage = *parameters.storages()[0];
  // bf16 has steps of 1/128 above 1; ties go to the even one.
  storage.master.copy_(at::tensor({1 + 1.0 / 512, 1 + 3.0 / 512, 1 + 1.0 / 256, 1 + 3.0 / 256}));
  storage.publish_master();
  EXPECT_TRUE(at::equal(leaf.detach().to(at::kDouble),
                        at::tensor({1.0, 1 + 1.0 / 128, 1.0, 1 + 2.0 / 128}, at::kDouble)));
  EXPECT_TRUE(leaf.requires_grad());
  EXPECT_TRUE(leaf.is_leaf());

  Parameters unmixed(*groups, Dtypes::fp32(), kSeed);
  const at::Tensor same = unmixed.declare({named("w", {4})}, {4});
  unmixed.storages()[0]->master.fill_(7);
  unmixed.storages()[0]->publish_master();
  EXPECT_TRUE(at::equal(same.detach(), at::full({4}, 7.0)));
}

TEST(Parameters, HoldBuffersOfZerosInTheMasterDtype) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::bf16(), kSeed);
  const at::Tensor bias = parameters.declare_buffer("router.bias", {8});
  EXPECT_TRUE(at::equal(bias, at::zeros({8})));
  EXPECT_FALSE(bias.requires_grad());
  ASSERT_EQ(parameters.buffers().size(), 1u);
  EXPECT_EQ(parameters.buffers()[0].name, "router.bias");
  EXPECT_TRUE(parameters.buffers()[0].tensor.is_same(bias));
  EXPECT_EQ(parameters.logical_numel(), 0);
}

TEST(Parameters, CountEachLogicalParameterOnceInEveryLayout) {
  MeshShape shape;
  shape.world_size = 4;
  shape.tensor = 2;
  shape.expert = 2;
  const auto groups = rank_of(shape, 3);
  Parameters parameters(*groups, Dtypes::fp32(), kSeed);
  ParameterSpec column = named("column", {4, 6});
  column.tensor = Placement::sharded(0, 4);
  parameters.declare({column}, {2, 6});
  ParameterSpec experts = named("experts", {4, 3, 5});
  experts.family = Family::kExpert;
  parameters.declare({experts}, {2, 3, 5});
  EXPECT_EQ(parameters.logical_numel(), 24 + 60);
}

TEST(Parameters, RefuseANameThatIsTaken) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp32(), kSeed);
  parameters.declare({named("a", {2}), named("b", {2})}, {4});
  parameters.declare_buffer("c", {1});
  for (const std::string name : {"a", "b", "c"}) {
    const std::string text = "two parameters are named " + name;
    EXPECT_EQ(refusal([&] { parameters.declare({named(name, {2})}, {2}); }), text);
    EXPECT_EQ(refusal([&] { parameters.declare_buffer(name, {2}); }), text);
  }
  EXPECT_EQ(refusal([&] {
              parameters.declare({named("d", {2}), named("d", {2})}, {4});
            }),
            "two parameters are named d");
  EXPECT_EQ(parameters.storages().size(), 1u) << "a refused declaration leaves nothing behind";
}

TEST(Parameters, RefuseABufferThatThePiecesDoNotFill) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp32(), kSeed);
  EXPECT_EQ(refusal([&] {
              parameters.declare({named("a", {2, 3}), named("b", {3})}, {5, 2});
            }),
            "a: 9 elements on this rank do not fill a buffer of shape [5, 2]");
}

TEST(Scope, JoinsNamesWithDots) {
  const auto groups = Groups::single();
  Parameters parameters(*groups, Dtypes::fp32(), kSeed);
  const Scope root{parameters, ""};
  EXPECT_EQ(root.name("embedding"), "embedding");
  EXPECT_EQ((root / "layers.0" / "attention").name("q"), "layers.0.attention.q");
  EXPECT_EQ(&(root / "x").parameters, &parameters);
  EXPECT_EQ(&root.groups(), groups.get());
}

// A checksum of the bytes that a few parameters start from, in all dtypes.
std::string checksum_of_initial_values() {
  uint32_t checksum = 0;
  MeshShape shape;
  shape.world_size = 4;
  shape.tensor = 2;
  for (const Dtypes& dtypes : {Dtypes::fp64(), Dtypes::fp32(), Dtypes::bf16()}) {
    const auto groups = rank_of(shape, 1);
    Parameters parameters(*groups, dtypes, kSeed);
    ParameterSpec cut = named("cut", {300, 257});
    cut.tensor = Placement::sharded(0, 300);
    const at::Tensor leaf = parameters.declare({cut, named("whole", {1000})}, {150 * 257 + 1000});
    checksum = crc32c(leaf.const_data_ptr(), leaf.nbytes(), checksum);
  }
  return fmt::format("{:08x}", checksum);
}

// Taken on an x86-64 machine with AVX-512. Another value anywhere means that initial weights depend
// on the processor, the compiler or the release: runs would not be comparable.
constexpr char kChecksum[] = "0b645a6c";

TEST(Parameters, StartFromTheSameBitsForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const int num_threads : {1, 2, 3}) {
    at::set_num_threads(num_threads);
    EXPECT_EQ(checksum_of_initial_values(), kChecksum) << num_threads << " threads";
  }
  at::set_num_threads(before);
}

TEST(Parameters, StartFromTheSameBitsOnAnyProcessor) {
  // libtorch picks its kernels by this variable once per process.
  std::set<std::string> kernels;
  for (const std::string capability : {"default", "avx2", "avx512"}) {
    const std::string command =
        fmt::format("ATEN_CPU_CAPABILITY={} OMP_NUM_THREADS=2 /proc/{}/exe --print-checksum",
                    capability, getpid());
    FILE* const output = popen(command.c_str(), "r");
    ASSERT_NE(output, nullptr);
    char checksum[16] = {};
    char kernel[16] = {};
    EXPECT_EQ(std::fscanf(output, "%15s %15s", checksum, kernel), 2);
    EXPECT_EQ(pclose(output), 0);
    EXPECT_EQ(std::string(checksum), kChecksum) << capability;
    kernels.insert(kernel);
  }
  if (at::get_cpu_capability() != "DEFAULT") {
    EXPECT_GE(kernels.size(), 2u) << "the variable had no effect";
  }
}

}  // namespace

int print_checksum() {
  fmt::print("{} {}\n", checksum_of_initial_values(), at::get_cpu_capability());
  return 0;
}

}  // namespace switchyard

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--print-checksum") {
    return switchyard::print_checksum();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
