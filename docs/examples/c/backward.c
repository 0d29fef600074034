#include <backlight/backlight.h>
#include <stdio.h>

/* Prints what went wrong, if anything did. */
static int succeeded(backlight_status status) {
    if (status != BACKLIGHT_SUCCESS) {
        fprintf(stderr, "%s: %s\n", backlight_status_name(status), backlight_last_error_message());
    }
    return status == BACKLIGHT_SUCCESS;
}

/* Pointers into device memory, of contiguous (batch, heads, seqlen, head_dim) tensors. */
struct pointers {
    const void *q, *k, *v, *o, *d_o;
    const float* lse;
    void *d_q, *d_k, *d_v;
};

/* One step: enqueued on the stream, done when the stream is. */
int run_backward(const backlight_plan* plan, const struct pointers* p, void* workspace,
                 size_t workspace_bytes, backlight_stream stream) {
    backlight_problem problem = BACKLIGHT_PROBLEM_INIT;
    backlight_tensors tensors = BACKLIGHT_TENSORS_INIT;
    if (!succeeded(backlight_plan_problem(plan, &problem))) {
        return 0;
    }
    const int64_t row = problem.head_dim;
    const int64_t head = problem.seqlen_q * row;
    const int64_t batch = problem.heads * head;
    tensors.q = (backlight_const_tensor){p->q, batch, head, row};
    tensors.k = (backlight_const_tensor){p->k, batch, head, row};
    tensors.v = (backlight_const_tensor){p->v, batch, head, row};
    tensors.o = (backlight_const_tensor){p->o, batch, head, row};
    tensors.d_o = (backlight_const_tensor){p->d_o, batch, head, row};
    tensors.lse =
        (backlight_const_rows){p->lse, problem.heads * problem.seqlen_q, problem.seqlen_q};
    tensors.d_q = (backlight_tensor){p->d_q, batch, head, row};
    tensors.d_k = (backlight_tensor){p->d_k, batch, head, row};
    tensors.d_v = (backlight_tensor){p->d_v, batch, head, row};
    return succeeded(backlight_plan_run(plan, &tensors, workspace, workspace_bytes, stream));
}

int main(void) {
    backlight_runtime* runtime = NULL;
    backlight_plan* plan = NULL;
    size_t workspace_bytes = 0;

    backlight_problem problem = BACKLIGHT_PROBLEM_INIT;
    problem.batch = 8;
    problem.heads = 16;
    problem.seqlen_q = problem.seqlen_kv = 4096;
    problem.head_dim = 128;
    problem.causal = 1;

    /* Null: the defaults, device 0; null: the configuration that the library chooses. */
    int good = succeeded(backlight_runtime_create(NULL, &runtime)) &&
               succeeded(backlight_runtime_backward(runtime, &problem, NULL, &plan)) &&
               succeeded(backlight_plan_workspace_bytes(plan, &workspace_bytes));
    if (good) {
        printf("workspace on %s: %zu bytes\n", backlight_runtime_device_name(runtime),
               workspace_bytes);
        /* Allocate that much device memory, 256-byte aligned, and call run_backward every step. */
    }
    backlight_plan_destroy(plan);
    backlight_runtime_destroy(runtime);
    return good ? 0 : 1;
}
