ops: object
