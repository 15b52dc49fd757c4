! A malleable Jacobi solver in Fortran, the twin of jacobi.c:
!
!     python -m dmr.launch -n 2 ./jacobi-fortran --rows 512 --cols 512 --sweeps 2000 --out result.bin
!
! The field is dealt to the ranks in blocks of rows, which are the columns of the array here. The upper edge is held at
! 1, the other edges at 0. The result has the same bits whatever the number of ranks, and however often it changes.
! What makes the program malleable is marked with (*).
program jacobi
    use, intrinsic :: iso_c_binding, only: c_double, c_int, c_int64_t, c_size_t
    use, intrinsic :: iso_fortran_env, only: error_unit
    use mpi
    use dmr                                                         ! (*)
    implicit none

    type :: options
        integer :: rows = 512, cols = 512, sweeps = 1000, minimum = 1, maximum = 16, factor = 2, every = 10
        real(c_double) :: pause = 0
        character(len=256) :: out = "result.bin", report = ""
    end type

    type(options) :: o
    type(dmr_handler) :: parent                                     ! (*)
    integer :: world, rank, ranks, code, done, col
    integer(c_int64_t) :: first, last
    integer(c_size_t) :: row_bytes
    real(c_double) :: change
    real(c_double), allocatable :: field(:, :), next(:, :)
    logical :: leaves

    call MPI_Init(code)
    parent = dmr_inherited(MPI_COMM_WORLD)                          ! (*)
    world = dmr_world()                                             ! (*)
    call MPI_Comm_rank(world, rank, code)
    call MPI_Comm_size(world, ranks, code)
    o = read_options()
    if (o%rows < max(o%maximum, ranks)) call die("--rows", "every rank needs at least one row")
    call dmr_block_bounds(int(o%rows, c_int64_t), ranks, rank, first, last)
    allocate(field(o%cols, first - 1:last + 1), next(o%cols, first:last))
    row_bytes = o%cols * 8_c_size_t
    field = 0
    done = 0
    change = 0
    if (dmr_there(parent)) then                                     ! (*) from here
        if (dmr_receive(parent, done, 4_c_size_t) /= 0) call die("dmr", dmr_error_text())
        if (dmr_receive_blocks(parent, field(:, first:last), int(o%rows, c_int64_t), row_bytes) /= 0) &
            call die("dmr", dmr_error_text())
        call dmr_finish(parent)
        call report("resized")
    else                                                            ! (*) to here
        call fill()
        call report("start")
    end if
    if (rank == 0) field(:, 0) = [(1.0_c_double, col = 1, o%cols)]
    call solve(leaves)
    if (.not. leaves) then
        call write_field()
        call report("end")
        if (rank == 0) print "(i0, a, es12.6, a, i0, a)", done, " sweeps, last change ", change, " on ", ranks, " ranks"
    end if
    deallocate(field, next)
    call MPI_Finalize(code)

contains

    ! Sweeps to the end; or until other processes go on.
    subroutine solve(leaves)
        logical, intent(out) :: leaves
        type(dmr_handler) :: handler
        integer :: action, wanted
        leaves = .false.
        do while (done < o%sweeps)
            call sweep()
            done = done + 1
            call wait(o%pause)
            if (mod(done, o%every) /= 0 .or. done == o%sweeps) cycle
            action = dmr_check_status(world, o%minimum, o%maximum, o%factor, 0, wanted, handler)    ! (*) from here
            if (action == DMR_ERROR) call die("dmr", dmr_error_text())
            if (.not. dmr_there(handler)) cycle
            call report(merge("expand", "shrink", action == DMR_EXPAND))
            if (dmr_send(handler, done, 4_c_size_t) /= 0) call die("dmr", dmr_error_text())
            if (dmr_send_blocks(handler, field(:, first:last), int(o%rows, c_int64_t), row_bytes) /= 0) &
                call die("dmr", dmr_error_text())
            call dmr_finish(handler)
            leaves = .true.
            return                                                  ! (*) to here: the new processes go on
        end do
    end subroutine

    ! Replaces every point by the mean of its neighbours.
    subroutine sweep()
        integer :: above, below, status(MPI_STATUS_SIZE), c
        integer(c_int64_t) :: r
        real(c_double) :: largest
        above = merge(rank - 1, MPI_PROC_NULL, rank > 0)
        below = merge(rank + 1, MPI_PROC_NULL, rank < ranks - 1)
        call MPI_Sendrecv(field(1, first), o%cols, MPI_DOUBLE_PRECISION, above, 0, &
                          field(1, last + 1), o%cols, MPI_DOUBLE_PRECISION, below, 0, world, status, code)
        call MPI_Sendrecv(field(1, last), o%cols, MPI_DOUBLE_PRECISION, below, 0, &
                          field(1, first - 1), o%cols, MPI_DOUBLE_PRECISION, above, 0, world, status, code)
        largest = 0
        next = field(:, first:last)
        do r = first, last
            do c = 2, o%cols - 1
                next(c, r) = 0.25_c_double * (((field(c, r - 1) + field(c, r + 1)) + field(c - 1, r)) + field(c + 1, r))
                largest = max(largest, abs(next(c, r) - field(c, r)))
            end do
        end do
        field(:, first:last) = next
        call MPI_Allreduce(largest, change, 1, MPI_DOUBLE_PRECISION, MPI_MAX, world, code)
    end subroutine

    ! A bumpy first guess: no two rows alike, so that no exchange of rows goes unnoticed.
    subroutine fill()
        integer(c_int64_t) :: r, c
        do r = first - 1, last - 1
            do c = 1, o%cols - 2
                field(c + 1, r + 1) = real(mod(r * r + 37 * r + 11 * c, 1009_c_int64_t), c_double) / 1009
            end do
        end do
    end subroutine

    ! Every rank writes its rows to their place in the file.
    subroutine write_field()
        integer :: file, each
        do each = 0, ranks - 1
            if (each == rank) then
                open(newunit=file, file=trim(o%out), access="stream", form="unformatted", &
                     status=merge("replace", "old    ", rank == 0), action="readwrite")
                write(file, pos=(first - 1) * row_bytes + 1) field(:, first:last)
                close(file)
            end if
            call MPI_Barrier(world, code)
        end do
    end subroutine

    ! Rank 0 appends a line of JSON to the report, if one is wanted.
    subroutine report(event)
        character(len=*), intent(in) :: event
        integer :: file
        if (rank /= 0 .or. o%report == "") return
        open(newunit=file, file=trim(o%report), position="append", action="write")
        write(file, "(a, i0, a, i0, 3a)") '{"sweep": ', done, ', "size": ', ranks, ', "event": "', event, '"}'
        close(file)
    end subroutine

    type(options) function read_options() result(o)
        character(len=256) :: name, value
        integer :: i, at
        i = 1
        do while (i <= command_argument_count())
            call get_command_argument(i, name)
            at = index(name, "=")
            if (at > 0) then
                value = name(at + 1:)
                name = name(:at - 1)
            else
                i = i + 1
                call get_command_argument(i, value)
            end if
            select case (name)
                case ("--rows"); o%rows = number(name, value)
                case ("--cols"); o%cols = number(name, value)
                case ("--sweeps"); o%sweeps = number(name, value)
                case ("--min"); o%minimum = number(name, value)
                case ("--max"); o%maximum = number(name, value)
                case ("--factor"); o%factor = number(name, value)
                case ("--check-every"); o%every = number(name, value)
                case ("--sweep-seconds"); read(value, *, iostat=at) o%pause
                case ("--out"); o%out = value
                case ("--report"); o%report = value
                case default; call die(trim(name), "see examples/jacobi.f90")
            end select
            i = i + 1
        end do
    end function

    integer function number(name, value)
        character(len=*), intent(in) :: name, value
        integer :: bad
        read(value, *, iostat=bad) number
        if (bad /= 0 .or. number < 1) call die(trim(name), "must be a whole number from 1")
    end function

    subroutine wait(seconds)
        real(c_double), intent(in) :: seconds
        interface
            integer(c_int) function usleep(microseconds) bind(C)
                import :: c_int
                integer(c_int), value :: microseconds
            end function
        end interface
        integer(c_int) :: ignored
        if (seconds > 0) ignored = usleep(int(seconds * 1e6, c_int))
    end subroutine

    subroutine die(what, why)
        character(len=*), intent(in) :: what, why
        write(error_unit, "(5a)") "jacobi: ", what, ": ", trim(why)
        call MPI_Abort(MPI_COMM_WORLD, 1, code)
        stop 1
    end subroutine
end program
