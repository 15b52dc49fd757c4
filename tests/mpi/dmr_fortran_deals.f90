! For tests: rows dealt in turn and as the program says, which must be what they were after resizes.
program deals
    use, intrinsic :: iso_c_binding, only: c_int64_t, c_size_t
    use mpi
    use dmr
    implicit none
    integer(c_int64_t), parameter :: rows = 101, block = 3
    integer(c_size_t), parameter :: row_bytes = 16
    type(dmr_handler) :: parent, handler
    integer :: world, rank, ranks, wanted, step, code, action
    integer(c_int64_t) :: i
    integer(c_int64_t), allocatable :: mine(:), some(:, :), turn(:, :)
    call MPI_Init(code)
    parent = dmr_inherited(MPI_COMM_WORLD)
    world = dmr_world()
    call MPI_Comm_rank(world, rank, code)
    call MPI_Comm_size(world, ranks, code)
    mine = pack([(i, i = rows, 1, -1)], [(mod(i * i, int(ranks, c_int64_t)) == rank, i = rows, 1, -1)])
    allocate(some(2, size(mine)), turn(2, dmr_cyclic_rows(rows, block, ranks, rank)))
    step = 0
    if (dmr_there(parent)) then
        if (dmr_receive(parent, step, 4_c_size_t) /= 0) stop 2
        if (dmr_receive_cyclic(parent, turn, rows, row_bytes, block) /= 0) stop 3
        if (dmr_receive_irregular(parent, some, mine, row_bytes) /= 0) stop 4
        call dmr_finish(parent)
    else
        some(1, :) = mine
        turn(1, :) = [(dmr_cyclic_row(i, block, ranks, rank), i = 1, size(turn, 2))]
        some(2, :) = 0
        turn(2, :) = 0
    end if
    if (rank == 0) print "(a, i0)", "size ", ranks
    do while (step < 12)
        if (any(some(1, :) /= mine) .or. any(some(2, :) /= step)) stop 5
        if (any(turn(1, :) /= [(dmr_cyclic_row(i, block, ranks, rank), i = 1, size(turn, 2))])) stop 6
        if (any(turn(2, :) /= step)) stop 7
        some(2, :) = some(2, :) + 1
        turn(2, :) = turn(2, :) + 1
        step = step + 1
        action = dmr_check_status(world, 1, 8, 1, 0, wanted, handler)
        if (action == DMR_ERROR) stop 8
        if (.not. dmr_there(handler)) cycle
        if (dmr_size_before(handler) /= ranks) stop 9
        if (dmr_send(handler, step, 4_c_size_t) /= 0) stop 10
        if (dmr_send_cyclic(handler, turn, rows, row_bytes, block) /= 0) stop 11
        if (dmr_send_irregular(handler, some, mine, row_bytes) /= 0) stop 12
        if (dmr_receive(handler, step, 4_c_size_t) /= DMR_ERROR) stop 13
        if (dmr_error_text() /= "the old processes send, the new ones receive") stop 14
        call dmr_finish(handler)
        exit
    end do
    if (step == 12 .and. rank == 0) print "(a)", "made 12 steps"
    deallocate(mine, some, turn)
    call MPI_Finalize(code)
end program
