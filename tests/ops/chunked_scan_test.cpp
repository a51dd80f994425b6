#include "ops/chunked_scan.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "ops/scan_checks.h"

namespace switchyard {
namespace {

const SequenceTable kPacked = SequenceTable::from_lengths({3, 70, 1, 130}, 209);

struct Sizes {
  int64_t heads, groups, head_dim, state_size;
};
constexpr Sizes kSmall{4, 2, 3, 5};

// x, dt, a, b, c, d, state.
Tensors draw_inputs(const SequenceTable& table, const Sizes& sizes) {
  const auto normal = [](std::vector<int64_t> shape) { return at::randn(shape, at::kDouble); };
  const int64_t tokens = table.num_tokens;
  return {normal({tokens, sizes.heads, sizes.head_dim}),
          at::softplus(normal({tokens, sizes.heads})),
          -at::exp(normal({sizes.heads})),
          normal({tokens, sizes.groups, sizes.state_size}),
          normal({tokens, sizes.groups, sizes.state_size}),
          normal({sizes.heads}),
          normal({table.num_sequences(), sizes.heads, sizes.head_dim, sizes.state_size})};
}

Tensors to_type(const Tensors& in, at::ScalarType type) {
  const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
  return {in[0].to(type), in[1].to(wide), in[2].to(wide), in[3].to(type),
          in[4].to(type), in[5].to(wide), in[6].to(wide)};
}

ChunkedScanInputs inputs_of(const Tensors& in) {
  return {in[0], in[1], in[2], in[3], in[4], in[5], in[6]};
}

Tensors scan(const Tensors& in, const SequenceTable& table, int64_t chunk_size) {
  const ScanOutput out = chunked_scan(inputs_of(in), table, chunk_size);
  return {out.out, out.state};
}

// Token by token, as the formula stands.
Tensors reference_scan(const Tensors& in, const SequenceTable& table) {
  const int64_t heads_per_group = in[0].size(1) / in[3].size(1);
  const at::Tensor b = in[3].repeat_interleave(heads_per_group, 1);
  const at::Tensor c = in[4].repeat_interleave(heads_per_group, 1);
  Tensors outputs;
  Tensors states;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    at::Tensor h = in[6][i];
    for (int64_t t = table.starts[static_cast<size_t>(i)];
         t < table.starts[static_cast<size_t>(i) + 1]; ++t) {
      const at::Tensor decay = at::exp(in[1][t] * in[2]).view({-1, 1, 1});
      const at::Tensor step_x = (in[1][t].unsqueeze(1) * in[0][t]).unsqueeze(2);
      h = decay * h + step_x * b[t].unsqueeze(1);
      outputs.push_back(at::matmul(h, c[t].unsqueeze(2)).squeeze(2) +
                        in[5].unsqueeze(1) * in[0][t]);
    }
    states.push_back(h);
  }
  for (int64_t t = table.num_real_tokens(); t < table.num_tokens; ++t) {
    outputs.push_back(at::zeros_like(in[0][t]));
  }
  return {at::stack(outputs), at::stack(states)};
}

ScanCase in_chunks_of(int64_t chunk_size) {
  return {[=](const Tensors& in) { return scan(in, kPacked, chunk_size); },
          [](const Tensors& in) { return reference_scan(in, kPacked); }, to_type};
}

TEST(ChunkedScan, EqualsTheRecurrenceInEveryDtypeForEveryChunkSize) {
  at::manual_seed(1);
  for (const Sizes& sizes :
       {Sizes{1, 1, 1, 1}, kSmall, Sizes{6, 1, 17, 33}, Sizes{4, 4, 64, 128}}) {
    const Tensors in = draw_inputs(kPacked, sizes);
    for (const int64_t chunk_size : {1, 7, 64, 100, 128, 1000}) {
      expect_equals_reference(in_chunks_of(chunk_size), in, 1e-12);
    }
    expect_rounds_only_inputs_and_outputs(in_chunks_of(64), in);
  }
}

TEST(ChunkedScan, GradientsMatchDifferences) {
  at::manual_seed(2);
  const SequenceTable table = SequenceTable::from_lengths({2, 5}, 8);
  expect_gradients_match_differences([&](const Tensors& values) { return scan(values, table, 2); },
                                     draw_inputs(table, {2, 1, 2, 3}));
}

TEST(ChunkedScan, GradientsEqualThoseOfTheRecurrenceForEveryChunkSize) {
  at::manual_seed(3);
  for (const Sizes& sizes : {kSmall, Sizes{4, 2, 20, 40}}) {
    const Tensors in = draw_inputs(kPacked, sizes);
    for (const int64_t chunk_size : {1, 7, 64, 100, 1000}) {
      expect_gradients_equal_reference(in_chunks_of(chunk_size), in, 1e-11);
    }
  }
}

TEST(ChunkedScan, GradientsOfOneOutputAloneAreRight) {
  at::manual_seed(4);
  const SequenceTable table = SequenceTable::from_lengths({2, 5}, 8);
  const Tensors in = draw_inputs(table, {2, 1, 2, 3});
  for (const size_t output : {0, 1}) {
    expect_gradients_match_differences(
        [&](const Tensors& values) { return Tensors{scan(values, table, 3)[output]}; }, in);
  }
}

// Decays from almost nothing to all at once.
TEST(ChunkedScan, StaysExactForFastAndSlowDecays) {
  at::manual_seed(5);
  const SequenceTable table = SequenceTable::from_lengths({512});
  for (const double scale : {1e-6, 1e-2, 30.0}) {
    Tensors in = draw_inputs(table, kSmall);
    in[1] = in[1] * scale;
    const Tensors expected = reference_scan(in, table);
    const Tensors actual = scan(to_type(in, at::kFloat), table, 128);
    EXPECT_LE(relative_error(actual[0], expected[0]), 1e-5) << scale;
    EXPECT_LE(relative_error(actual[1], expected[1]), 1e-5) << scale;
  }
}

TEST(ChunkedScan, PackedEqualsSeparateBitForBit) {
  at::manual_seed(6);
  const Tensors in = to_type(draw_inputs(kPacked, kSmall), at::kFloat);
  const Tensors whole = scan(in, kPacked, 64);
  for (int64_t i = 0; i < kPacked.num_sequences(); ++i) {
    const int64_t start = kPacked.starts[static_cast<size_t>(i)];
    const int64_t end = start + kPacked.length(i);
    const auto rows = [&](const at::Tensor& tensor) { return tensor.slice(0, start, end); };
    const Tensors alone = scan({rows(in[0]), rows(in[1]), in[2], rows(in[3]), rows(in[4]), in[5],
                                in[6].slice(0, i, i + 1)},
                               SequenceTable::from_lengths({end - start}), 64);
    EXPECT_TRUE(same_bytes(alone[0], rows(whole[0])));
    EXPECT_TRUE(same_bytes(alone[1][0], whole[1][i]));
  }
}

TEST(ChunkedScan, ReadsPartsOfWiderRows) {
  at::manual_seed(7);
  const Tensors in = draw_inputs(kPacked, kSmall);
  const at::Tensor together =
      at::cat({in[0].flatten(1), in[3].flatten(1), in[4].flatten(1)}, 1);  // x, b, c
  const at::Tensor x = together.slice(1, 0, 12).view({-1, 4, 3});
  const at::Tensor b = together.slice(1, 12, 22).view({-1, 2, 5});
  const at::Tensor c = together.slice(1, 22, 32).view({-1, 2, 5});
  EXPECT_TRUE(same_bytes(scan({x, in[1], in[2], b, c, in[5], in[6]}, kPacked, 64)[0],
                         scan(in, kPacked, 64)[0]));
}

TEST(ChunkedScan, StartsFromZerosWithoutAState) {
  at::manual_seed(8);
  Tensors in = draw_inputs(kPacked, kSmall);
  in[6].zero_();
  const Tensors first(in.begin(), in.begin() + 6);
  const Tensors probe{at::randn(in[0].sizes(), at::kDouble)};
  const auto with_state = [](const Tensors& values) {
    return Tensors{scan(values, kPacked, 64)[0]};
  };
  const auto without = [](const Tensors& values) {
    return Tensors{chunked_scan({values[0], values[1], values[2], values[3], values[4], values[5],
                                 std::nullopt},
                                kPacked, 64)
                       .out};
  };
  EXPECT_LE(relative_error(without(first)[0], with_state(in)[0]), 1e-14);
  const Tensors expected = gradients(with_state, in, probe);
  const Tensors actual = gradients(without, first, probe);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_LE(relative_error(actual[i], expected[i]), 1e-13) << i;
  }
}

TEST(ChunkedScan, GivesTheSameBytesForAllThreadCountsAndWritesEveryRow) {
  at::manual_seed(9);
  expect_deterministic_and_whole(in_chunks_of(32), draw_inputs(kPacked, {6, 2, 10, 12}));
}

TEST(ChunkedScan, AcceptsZeroTokens) {
  const SequenceTable none = SequenceTable::from_lengths({}, 0);
  const Tensors in = draw_inputs(none, kSmall);
  const Tensors grads =
      gradients([&](const Tensors& values) { return Tensors{scan(values, none, 4)[0]}; }, in,
                {at::zeros({0, 4, 3}, at::kDouble)});
  EXPECT_EQ(grads[0].sizes(), at::IntArrayRef({0, 4, 3}));
  EXPECT_TRUE(at::equal(grads[2], at::zeros({4}, at::kDouble)));
}

TEST(ChunkedScan, RefusesInputsThatDoNotFit) {
  const SequenceTable table = SequenceTable::from_lengths({2});
  const Tensors good = to_type(draw_inputs(table, kSmall), at::kBFloat16);
  Tensors in = good;
  in[3] = in[4] = at::ones({2, 3, 5}, at::kBFloat16);
  EXPECT_EQ(message_of([&] { scan(in, table, 4); }),
            "chunked_scan: the number of heads (4) must be a multiple of the groups (3)");
  in = good;
  in[1] = in[1].to(at::kBFloat16);
  EXPECT_EQ(message_of([&] { scan(in, table, 4); }),
            "chunked_scan: dt is BFloat16, a Float and d Float; with x of BFloat16 they must be "
            "Float");
  EXPECT_EQ(message_of([&] { scan(good, SequenceTable::from_lengths({3}), 4); }),
            "chunked_scan: x has 2 tokens, the sequence table 3");
  EXPECT_EQ(message_of([&] { scan(good, table, 0); }),
            "chunked_scan: the chunk size (0) must be above 0");
}

TEST(StepScan, TokenByTokenEqualsTheWhole) {
  at::manual_seed(10);
  const SequenceTable table = SequenceTable::from_lengths({40});
  for (const auto& [type, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 1e-2}}) {
    const Tensors in = to_type(draw_inputs(table, {6, 2, 17, 33}), type);
    const Tensors whole = scan(in, table, 16);
    at::Tensor state = in[6];
    Tensors outputs;
    for (const auto& [begin, end] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 20}, {20, 21}, {21, 40}}) {
      const auto rows = [&, begin = begin, end = end](const at::Tensor& tensor) {
        return tensor.slice(0, begin, end);
      };
      const ScanOutput some =
          step_scan({rows(in[0]), rows(in[1]), in[2], rows(in[3]), rows(in[4]), in[5], state});
      outputs.push_back(some.out);
      state = some.state;
    }
    EXPECT_LE(relative_error(at::cat(outputs), whole[0]), tolerance);
    EXPECT_LE(relative_error(state, whole[1]), tolerance);
  }
}

TEST(StepScan, RefusesAMissingState) {
  const Tensors in = draw_inputs(SequenceTable::from_lengths({2}), kSmall);
  EXPECT_EQ(message_of([&] {
              step_scan({in[0], in[1], in[2], in[3], in[4], in[5], std::nullopt});
            }),
            "step_scan: the state must be given");
}

}  // namespace
}  // namespace switchyard
