#pragma once

namespace switchyard {

// Makes threads that wait for each other give their core away soon. OpenMP's default is to spin for
// milliseconds, which costs a factor of ten and more when anything else wants the cores: a second
// run, a build, a busy host. The OpenMP library reads its environment once, when it is loaded, so
// the program starts itself anew with GOMP_SPINCOUNT set; unless the user has set that or
// OMP_WAIT_POLICY.
void give_waiting_cores_away(char** argv);

}  // namespace switchyard
