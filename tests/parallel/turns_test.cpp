#include "parallel/turns.h"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

namespace switchyard {
namespace {

// Writes down its letter and gives way, so often.
std::function<void()> letters(std::string& text, char letter, int times) {
  return [&text, letter, times] {
    for (int i = 0; i < times; ++i) {
      text += letter;
      Turns::give_way();
    }
  };
}

TEST(Turns, AreTakenFromTheFirstOnUntilOneEnds) {
  Ledger ledger;
  Turns turns(ledger);
  std::string text;
  turns.run(letters(text, 'a', 2), letters(text, 'b', 4));
  EXPECT_EQ(text, "ababbb");
  text.clear();
  turns.run(letters(text, 'a', 4), letters(text, 'b', 2));
  EXPECT_EQ(text, "ababaa");
}

TEST(Turns, WithoutThemGivingWayDoesNothing) {
  EXPECT_FALSE(Turns::are_taken());
  Turns::give_way();
  Ledger ledger;
  Turns turns(ledger);
  bool were_taken = false;
  bool are_taken_alone = true;
  turns.run([] {},
            [&] {
              are_taken_alone = Turns::are_taken();
              Turns::give_way();
            });
  EXPECT_FALSE(are_taken_alone);
  turns.run([] { Turns::give_way(); }, [&] { were_taken = Turns::are_taken(); });
  EXPECT_TRUE(were_taken);
  EXPECT_FALSE(Turns::are_taken());
}

// Sets a flag when it goes out of scope.
struct Leaving {
  bool& has_left;
  ~Leaving() { has_left = true; }
};

TEST(Turns, EndWithTheErrorOfEitherOne) {
  Ledger ledger;
  Turns turns(ledger);
  bool has_left = false;
  const auto wait = [&] {
    const Leaving leaving{has_left};
    Turns::give_way();
    Turns::give_way();
    ADD_FAILURE() << "it should have been unwound";
  };
  const auto fail = [] {
    Turns::give_way();
    throw std::out_of_range("mine");
  };
  for (const bool is_first : {true, false}) {
    has_left = false;
    const auto run = [&] { is_first ? turns.run(fail, wait) : turns.run(wait, fail); };
    EXPECT_THROW(run(), std::out_of_range);
    EXPECT_TRUE(has_left);
  }
  bool has_run = false;
  EXPECT_THROW(turns.run([] { throw std::out_of_range("at once"); }, [&] { has_run = true; }),
               std::out_of_range);
  EXPECT_FALSE(has_run);
  std::string text;
  turns.run(letters(text, 'a', 1), letters(text, 'b', 1));
  EXPECT_EQ(text, "ab");
}

TEST(Turns, ShareTheStateOfTheCallersThread) {
  Ledger ledger;
  Turns turns(ledger);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto state_in_turn = [&] {
    std::pair<bool, int> state;
    turns.run([&] { state = {at::GradMode::is_enabled(), at::get_num_threads()}; }, [] {});
    return state;
  };
  EXPECT_EQ(state_in_turn(), std::pair(true, 1));
  const at::NoGradGuard no_grad;
  EXPECT_EQ(state_in_turn(), std::pair(false, 1));
  at::set_num_threads(threads);
}

TEST(Turns, KeepThePositionOfEachComputation) {
  Ledger ledger;
  ledger.position() = {.step = 4, .layer = -1};
  Turns turns(ledger);
  const auto through_layers = [&ledger](int64_t first, int64_t step) {
    return [&ledger, first, step] {
      for (int64_t layer = first; layer != first + 3 * step; layer += step) {
        const LayerMark mark(ledger, layer);
        Turns::give_way();
        EXPECT_EQ(ledger.position().layer, layer);
        EXPECT_EQ(ledger.position().step, 4);
      }
    };
  };
  turns.run(through_layers(2, -1), through_layers(0, 1));
  EXPECT_EQ(ledger.position().layer, -1);
  EXPECT_EQ(ledger.position().step, 4);
}

// A backward pass gives way in the middle, to a forward pass, and comes to its result.
TEST(Turns, LetABackwardPassGiveWay) {
  Ledger ledger;
  Turns turns(ledger);
  const at::Tensor weight = at::full({2}, 3.0, at::kDouble).requires_grad_(true);
  const at::Tensor product = weight * weight;
  std::string text;
  product.register_hook([&](const at::Tensor& gradient) {
    text += "backward ";
    Turns::give_way();
    text += "goes on ";
    return gradient;
  });
  at::Tensor other;
  turns.run([&, sum = product.sum()] { sum.backward(); },
            [&] {
              other = (weight * 5).sum();
              text += "forward ";
            });
  EXPECT_EQ(text, "backward forward goes on ");
  EXPECT_TRUE(weight.grad().equal(at::full({2}, 6.0, at::kDouble)));
  EXPECT_EQ(other.item<double>(), 30);
  EXPECT_TRUE(other.requires_grad());
}

}  // namespace
}  // namespace switchyard
