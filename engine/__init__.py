"""The engine program: schedules requests over one device, runs the model, samples and detokenizes."""
