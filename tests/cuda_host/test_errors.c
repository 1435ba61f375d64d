#include "tests/cuda_host/trial.h"
int main(void)
{
    return 0;
}
